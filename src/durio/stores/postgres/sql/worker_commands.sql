-- Commands to running workers, and their answers.

-- name: insert_command(worker, verb, now)
-- Only for a worker that is there to receive it. The row of the worker is locked against
-- deletion: a transaction that deletes the worker later finds this command and closes it.
with asked as materialized (
  select id, namespace from {schema}.worker
  where id = :worker::int8 and not rescued
  for key share
),
inserted as (
  insert into {schema}.command (worker, verb, asked_at)
  select id, :verb::text, :now::float8 from asked
  returning id
)
select inserted.id, asked.namespace from inserted, asked

-- name: find_commands(worker)
-- `offset 0`: first the open commands are selected, then they are sorted. Without it the
-- planner may scan all commands in order.
select id, verb
from (
  select id, verb from {schema}.command
  where worker = :worker::int4 and answered_at is null
  offset 0
) c
order by id limit 100

-- name: answer_command(id, worker, now, answer)
update {schema}.command set answered_at = :now::float8, answer = :answer::text
where id = :id::int8 and worker = :worker::int4 and answered_at is null

-- name: close_commands(workers, now)
-- These workers are gone and will not answer.
update {schema}.command set answered_at = :now::float8, answer = ''
where worker = any(:workers::int4[]) and answered_at is null

-- name: read_answer(id)
select answered_at, answer from {schema}.command where id = :id::int8

-- name: prune_commands(asked_until, limit)
delete from {schema}.command
where id = any(array(
  select id from {schema}.command where asked_at <= :asked_until::float8
  order by id limit :limit::int8
  for update skip locked
))
