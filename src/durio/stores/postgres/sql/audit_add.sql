-- One more step of the same act.
update {schema}.audit set at = $2::float8, jobs = jobs + $3::int8 where seq = $1::int8
returning seq
