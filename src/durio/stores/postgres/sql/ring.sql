-- In a transaction of its own that flushes nothing: a notify holds one lock of the whole
-- database until its commit is done, and a hint need not be durable.
with hint as materialized (select set_config('synchronous_commit', 'off', true))
select pg_notify($1::text, n.payload) from hint cross join unnest($2::text[]) n(payload)
