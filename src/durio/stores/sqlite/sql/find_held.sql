select id, claim_no, retried, losses from job
where state = 3 and worker = ?1
order by seq limit ?2
