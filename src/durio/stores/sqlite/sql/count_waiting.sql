-- Index entries alone, and never many more than ?2 of them.
select (select count(*) from (select 1 from job where state = 2 and queue = ?1 limit ?2))
  + (select count(*) from (select 1 from job where state = 0 and queue = ?1 limit ?2))
