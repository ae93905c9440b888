-- Not the row without names: it numbers the deaths.
select lane, task, error_type, dead from {schema}.tally
where lane >= $1::text and lane < $2::text
order by lane, task, error_type
