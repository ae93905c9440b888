select state, claim_no, reason from job where id = ?1
