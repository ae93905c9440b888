-- One seek per bucket, however many jobs it holds.
select min(bucket) from job where bucket > ?1
