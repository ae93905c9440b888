select id, claim_no from job where state = 3 and worker = ?1 and cancel
