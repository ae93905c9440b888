update job set queue = ?2
where seq in (
  select seq from job where state = 0 and queue = ?1 order by run_at limit ?3
)
returning 1
