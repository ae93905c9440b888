-- A dead letter from elsewhere; a job that is stored stays as it is.
insert into {schema}.kept (
  id, lane, rank, state, task, payload, retried, losses, snoozed, claim_no, lost, opts,
  errors, created_at, started_at, finished_at, gone_at, reason
)
select $1::uuid, $2::text, $3::int2, 5, $4::text, $5::bytea, $6::int4, $7::int4, $8::int4,
  $9::int4, $10::int2, $11::bytea, $12::bytea[], $13::float8, $14::float8, $15::float8,
  $16::float8, $17::text
where not exists (select 1 from {schema}.job where id = $1::uuid)
  and not exists (select 1 from {schema}.hist where id = $1::uuid)
on conflict (id) do nothing
returning id
