-- null leaves a thing as it is.
update {schema}.queue
set paused = coalesce($2::bool, paused), closed = coalesce($3::bool, closed)
where name = $1::text
