update job set alone = 1
where id = ?1 and claim_no = ?2 and worker = ?3 and state = 3
returning id
