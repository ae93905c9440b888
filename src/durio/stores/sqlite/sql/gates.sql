-- Gates: reading and writing them, and the jobs that stand before them or have passed.

-- part: shown_state
iif(job.state = 1 and exists (
  select 1 from gated where gated.seq = job.seq and gated.newest is not null
), 2, job.state)

-- name: read_gate(name)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
select cap, used, rate, burst, tokens, at, until, due from gate where name = :name

-- name: write_gate(name, cap, used, rate, burst, tokens, at, until, due)
insert or replace into gate (name, cap, used, rate, burst, tokens, at, until, due)
values (:name, :cap, :used, :rate, :burst, :tokens, :at, :until, :due)

-- name: find_gates(first, end, limit)
-- only here: PostgreSQL finds the gates that become different (`find_gates_to_change`).
select name from gate where name >= :first and name < :end order by name limit :limit

-- name: read_gates(first, end, limit)
select name, cap, used, rate, burst, tokens, at, until,
  (select count(*) from gated where gated.gate = gate.name)
from gate where name >= :first and name < :end order by name limit :limit

-- name: read_gated(ids)
-- `ids` is a JSON list of ids in hexadecimal.
select job.id, job.ties, coalesce(gated.held, 0), gated.gate
from job left join gated using (seq)
where job.id in (select unhex(value) from json_each(:ids)) and job.ties is not null
  and job.state < 4

-- name: find_due_gates(now, limit)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
select name from gate where due <= :now order by due limit :limit

-- name: next_due_gate()
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
select min(due) from gate where due is not null

-- name: find_unused_gates(after, limit)
-- only here: PostgreSQL finds and deletes them in one statement (`prune_gates`).
select name, cap, used, rate, burst, tokens, at, until from gate
where name > :after and used = 0 and not exists (select 1 from gated where gated.gate = gate.name)
order by name limit :limit

-- name: delete_gate(name)
-- only here: as `find_unused_gates`.
delete from gate where name = :name

-- name: read_entrants(seqs)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
-- Jobs that are to pass their gates. `seqs` is a JSON array.
select job.seq, job.queue, job.rank, coalesce(gated.held, 0), job.ties
from json_each(:seqs) as each
cross join job on job.seq = each.value
left join gated on gated.seq = job.seq
where json_array_length(job.ties, '$[3]') > 0
order by each.key

-- name: find_seq(id)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
select seq from job where id = :id

-- name: block_for_gates(seq)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
update job set state = 1 where seq = :seq

-- name: unblock_plain(seq)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
-- A new job that has passed all gates at once and holds no place.
update job set state = 2 where seq = :seq

-- name: find_before_gate(gate, limit)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
select job.seq, job.queue, job.rank, gated.held, job.ties
from gated cross join job using (seq)
where gated.gate = :gate order by gated.rank, gated.ticket limit :limit

-- name: write_gated(seq, lane, rank, gate, ticket, newest, since, held)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
insert or replace into gated (seq, queue, rank, gate, ticket, newest, since, held)
values (:seq, :lane, :rank, :gate, :ticket, :newest, :since, :held)

-- name: draw_tickets(count)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
update ticket set last = last + :count returning last

-- name: newest_job()
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
select coalesce(max(seq), 0) from job

-- name: delete_gated(seq)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
delete from gated where seq = :seq returning held

-- name: keep_places(seq, held)
-- only here: functions of PostgreSQL do this (`pass_gates`, `settle_gates`).
-- A job that runs or is scheduled, and keeps these places.
update gated set gate = null, newest = null, held = :held where seq = :seq

-- name: move_gated(id, to_lane)
-- only here: as `move_wait`.
update gated set queue = :to_lane where seq = (select seq from job where id = :id)
