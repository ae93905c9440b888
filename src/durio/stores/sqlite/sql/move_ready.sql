update job set queue = ?2
where seq in (
  select seq from job where state = 2 and queue = ?1 order by rank, seq limit ?3
)
returning 1
