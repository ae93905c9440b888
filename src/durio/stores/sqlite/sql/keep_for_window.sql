-- Within a key's window the done job answers for it, with its result: both stay as long.
update job
set result_until = max(result_until, (select until from uniq where key = ?1 and id = ?2)),
  gone_at = max(gone_at, (select until from uniq where key = ?1 and id = ?2))
where id = ?2 and exists (select 1 from uniq where key = ?1 and id = ?2 and until is not null)
