-- Which database this is: its name, its number and when our schema was made in it; whether
-- anything can be written; whether this is a transaction of ours; and whether it sees what
-- others commit meanwhile. Then what the connection makes of the types that we use: each
-- value is there if it came here as itself.
select current_database()::text,
  d.oid::text || ' ' || encode(float8send((
    select m.applied_at from {schema}.migration m order by m.number limit 1
  )::float8), 'hex'),
  case when pg_is_in_recovery() then 'replica'
    when current_setting('transaction_read_only') = 'on' then 'read only'
    else 'writes' end,
  coalesce(current_setting('durio.block', true), ''),
  case when current_setting('transaction_isolation') in ('repeatable read', 'serializable')
    then 'frozen' else 'sees' end,
  case when $1::text = 'Aa' then 'Aa'::text end,
  case when $2::bytea = decode('00ff5c', 'hex') then decode('00ff5c', 'hex') end,
  case when $3::float8 = 1234567890.123456 then 1234567890.123456::float8 end,
  case when $4::int2 = 2 then 2::int2 end,
  case when $5::int4 = 70000 then 70000::int4 end,
  case when $6::int8 = 9007199254740993 then 9007199254740993::int8 end,
  case when $7::bool then true end,
  '00112233-4455-6677-8899-aabbccddeeff'::uuid as id
from pg_catalog.pg_database d where d.datname = current_database()
