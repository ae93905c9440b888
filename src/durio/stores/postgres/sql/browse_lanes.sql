select name, paused, closed, maxsize, hand_maxsize, is_over from {schema}.queue
where name >= $1::text and name < $2::text
order by name
