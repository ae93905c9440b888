select id from worker where not rescued order by id
