-- A bound begins to hold. Nothing makes jobs `blocked` yet: they would be counted here too.
update queue
set is_over = 0, depth = (select count(*) from job where state = 2 and queue = ?1)
  + (select count(*) from job where state = 0 and queue = ?1)
where name = ?1
