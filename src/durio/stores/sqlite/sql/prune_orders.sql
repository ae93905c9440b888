delete from command
where id in (select id from command where asked_at <= ?1 order by id limit ?2)
