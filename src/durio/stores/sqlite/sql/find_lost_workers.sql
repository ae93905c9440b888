select id from worker
where (rescued or boot <> ?1 or expires_at <= ?2) and (?3 is null or namespace = ?3)
order by id
