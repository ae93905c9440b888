-- A default ($3) yields to a bound that somebody chose meanwhile.
insert into {schema}.queue as q (name, maxsize, is_default)
select d.lane, d.maxsize, $3::bool and d.maxsize is not null
from unnest($1::text[], $2::int8[]) d (lane, maxsize)
order by d.lane
on conflict (name) do update set maxsize = excluded.maxsize, is_default = excluded.is_default
where not $3::bool or q.maxsize is null or q.is_default
