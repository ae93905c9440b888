select id, verb from command where worker = ?1 and answered_at is null order by id limit 100
