-- Through all that runs, once in a while. No `not exists`: that may be a join, by two walks.
select r.id from {schema}.run as r
where (select 1 from {schema}.worker as w where w.id = r.worker) is null
order by r.id
limit $1::int4
