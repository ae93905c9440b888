select name, paused from queue where name >= ?1 and name < ?2 order by name
