delete from {schema}.audit as a
using unnest($1::float8[], $2::text[], $3::text[], $4::text[], $5::text[])
  as u (at, namespace, who, verb, target)
where a.at = u.at and a.namespace = u.namespace and a.who = u.who and a.verb = u.verb
  and a.target = u.target
