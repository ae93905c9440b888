-- Where these ids are. What is over is looked for where $2 says so, and where a repeat has
-- stored the id: then this is the first try, late. All of it in one snapshot, in which a job
-- is either live or over. No `exists`: see enqueue_doubt.
with w as materialized (
  select i.id,
    i.deep or (select 1 from {schema}.repeated p where p.id = i.id) is not null as deep
  from unnest($1::uuid[], $2::bool[]) i (id, deep)
)
select w.id, f.state, f.lane, f.created_at
from w cross join lateral (
  select case
      when (select 1 from {schema}.run r where r.id = j.id) is not null then 3
      when (
        select 1 from {schema}.sched s
        where s.lane = j.lane and s.run_at = j.run_at and s.id = j.id
      ) is not null then 0
      else 2 end as state, j.lane, j.created_at
  from {schema}.job j where j.id = w.id
  union all
  select k.state, k.lane, k.created_at from {schema}.kept k where w.deep and k.id = w.id
  union all
  select h.state, h.lane, h.created_at from {schema}.hist h where w.deep and h.id = w.id
  union all
  select 4, '', 0 from {schema}.repeated p where p.id = w.id  -- it has left no trace
  limit 1
) f
