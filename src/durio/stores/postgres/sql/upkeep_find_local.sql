-- Workers whose life mark can be seen from here.
select id, info::json -> 'life' ->> 'name' from {schema}.worker
where info::json -> 'life' ->> 'host' = $1::text
  and ($2::text is null or namespace = $2::text)
order by id
