select distinct e.lane from {schema}.entered e
where e.lane >= $1::text and e.lane < $2::text
order by e.lane
limit 1000
