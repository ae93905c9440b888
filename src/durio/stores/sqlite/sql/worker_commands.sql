-- Commands for workers, and their answers. A worker reads its commands when it renews.

-- name: insert_command(worker, verb, now)
-- Only for a worker that is registered and can still read it.
insert into command (worker, verb, asked_at)
select id, :verb, :now from worker where id = :worker and not rescued
returning id

-- name: find_worker_namespace(worker)
-- only here: in PostgreSQL `insert_command` returns it.
-- For the audit line of a command.
select namespace from worker where id = :worker

-- name: find_commands(worker)
select id, verb from command where worker = :worker and answered_at is null order by id limit 100

-- name: answer_command(id, worker, now, answer)
-- The first answer stays.
update command set answered_at = :now, answer = :answer
where id = :id and worker = :worker and answered_at is null

-- name: close_commands(worker, now)
-- The worker is gone and cannot answer: the answer is empty.
update command set answered_at = :now, answer = ''
where worker = :worker and answered_at is null

-- name: read_answer(id)
select answered_at, answer from command where id = :id

-- name: prune_commands(asked_before, limit)
delete from command
where id in (select id from command where asked_at <= :asked_before order by id limit :limit)
