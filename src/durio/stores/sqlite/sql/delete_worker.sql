delete from worker where id = ?1 returning id
