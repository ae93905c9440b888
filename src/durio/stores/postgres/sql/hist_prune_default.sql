-- Jobs that ended on a day that nobody had made in time.
delete from {schema}.hist_default
where finished_at <= $1::float8 and id = any(array(
  select h.id from {schema}.hist_default as h
  where h.id <= $3::uuid and h.finished_at <= $1::float8
  order by h.id
  limit $2::int4
))
returning 1
