select state, queue from job where id = ?1
