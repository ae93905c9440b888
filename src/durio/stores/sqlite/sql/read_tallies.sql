select queue, task, error_type, dead from tally
where queue >= ?1 and queue < ?2
order by queue, task, error_type
