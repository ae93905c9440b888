-- What a worker holds, $2 jobs at most; null: all.
select id from {schema}.run where worker = $1::int4 order by id limit $2::int4
