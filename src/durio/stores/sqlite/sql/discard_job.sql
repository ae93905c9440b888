delete from job where id = ?1 and state = 5
returning ukey
