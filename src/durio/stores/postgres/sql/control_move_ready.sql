with next as materialized (
  select ctid as place from {schema}.ready
  where lane = $1::text order by rank, id limit $3::int4
  for update skip locked
),
gone as (
  delete from {schema}.ready where ctid = any(array(select place from next))
  returning rank, id, claim_no
),
moved as (
  update {schema}.job set lane = $2::text where id = any(array(select id from gone))
)
insert into {schema}.ready (lane, rank, id, claim_no)
select $2::text, rank, id, claim_no from gone
returning 1
