-- For a worker that cannot be rung: has anybody acted on it, and which lanes of its
-- namespace have work? By jumps from lane to lane, as far as a worker would ask them.
with recursive busy (name, place) as (
  (
    select r.lane, 1 from {schema}.ready r
    where r.lane >= $2::text and r.lane < $3::text order by r.lane limit 1
  )
  union all
  select (
    select r.lane from {schema}.ready r
    where r.lane > busy.name and r.lane < $3::text order by r.lane limit 1
  ), busy.place + 1
  from busy where busy.name is not null and busy.place < 1000
)
select
  (select max(c.id) from (
     select id from {schema}.command
     where worker = $1::int4 and answered_at is null offset 0) c),
  (select count(*) from {schema}.run r where r.worker = $1::int4 and r.cancel),
  array(select q.name from {schema}.queue q
        where q.paused and q.name >= $2::text and q.name < $3::text order by q.name),
  array(select b.name from busy b where b.name is not null)
