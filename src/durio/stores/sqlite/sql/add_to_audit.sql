-- One more step of the same act.
update audit set at = ?2, jobs = jobs + ?3 where seq = ?1
returning seq
