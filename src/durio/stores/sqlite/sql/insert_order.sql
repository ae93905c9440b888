-- Only for a worker that is there to hear it.
insert into command (worker, verb, asked_at)
select id, ?2, ?3 from worker where id = ?1 and not rescued
returning id
