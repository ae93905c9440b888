-- A lease that is over but whose row stands: nobody has taken its jobs.
select 1 from {schema}.worker where id = $1::int4 and not rescued
