select queue, task, error_type, dead from tally order by queue, task, error_type
