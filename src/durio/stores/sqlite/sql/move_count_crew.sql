select (select count(*) from worker), (select count(*) from job where state = 3)
