select name, paused, closed, maxsize, hand_maxsize, is_over from queue
where name >= ?1 and name < ?2
order by name
