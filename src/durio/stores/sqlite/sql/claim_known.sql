update job
set state = 3, worker = ?1, claim_no = claim_no + 1, alone = 0, started_at = ?4
where seq in (
  select seq from job
  where state = 2 and queue = ?2 and task in (select value from json_each(?5))
  order by rank, seq limit ?3
)
