update job set progress = ?4
where id = ?1 and claim_no = ?2 and worker = ?3 and state = 3
returning id
