-- A lease that is over but whose row stands: nobody has taken its jobs.
select 1 from worker where id = ?1 and boot = ?2 and not rescued
