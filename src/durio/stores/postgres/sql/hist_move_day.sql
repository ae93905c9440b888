-- Jobs of a day that ended before somebody made it.
with moved as (
  delete from {schema}.hist_default
  where finished_at >= {first} and finished_at < {next}
  returning *
)
insert into {schema}.{day} select * from moved
