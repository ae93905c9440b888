-- One seek per bucket, however many jobs it holds.
select k.bucket from {schema}.kept as k where k.bucket > $1::text order by k.bucket limit 1
