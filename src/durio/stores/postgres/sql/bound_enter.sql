-- Counted by whoever locks these queues next.
insert into {schema}.entered (lane, jobs)
select c.lane, c.jobs from unnest($1::text[], $2::int8[]) c (lane, jobs)
