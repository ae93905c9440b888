-- A dead letter from elsewhere; a job that is stored stays as it is.
insert into job (
  id, queue, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors, created_at, started_at, finished_at, died_at, gone_at, reason, died_no
)
values (?1, ?2, ?3, 5, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15, ?16, ?17, ?18)
on conflict (id) do nothing
returning id
