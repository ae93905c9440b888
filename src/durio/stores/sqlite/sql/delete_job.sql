delete from job where id = ?1
