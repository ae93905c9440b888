-- Row by row: where days cannot be dropped.
delete from {schema}.hist
where finished_at <= $1::float8 and id = any(array(
  select h.id from {schema}.hist as h
  where h.id <= $3::uuid and h.finished_at <= $1::float8
  order by h.id
  limit $2::int4
))
returning 1
