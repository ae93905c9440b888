with next as materialized (
  select ctid as place from {schema}.sched
  where lane = $1::text order by run_at, id limit $3::int4
  for update skip locked
),
gone as (
  delete from {schema}.sched where ctid = any(array(select place from next))
  returning run_at, id, claim_no
),
moved as (
  update {schema}.job set lane = $2::text where id = any(array(select id from gone))
)
insert into {schema}.sched (lane, run_at, id, claim_no)
select $2::text, run_at, id, claim_no from gone
returning 1
