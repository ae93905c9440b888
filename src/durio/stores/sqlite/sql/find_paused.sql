select name from queue where paused and name >= ?1 and name < ?2
