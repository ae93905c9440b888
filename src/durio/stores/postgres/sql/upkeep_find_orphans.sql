select r.id from {schema}.run as r
where not exists (select 1 from {schema}.worker as w where w.id = r.worker)
order by r.id
limit $1::int4
