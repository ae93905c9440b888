-- A bound begins to hold. Nothing makes jobs `blocked` yet: they would be counted here too.
-- Under a bound `is_over` says whether it has to be counted once more: -1.
with e as (delete from {schema}.entered where lane = any($1::text[]))
update {schema}.queue q
set is_over = $2::int8, depth = (select count(*) from {schema}.ready r where r.lane = q.name)
  + (select count(*) from {schema}.sched s where s.lane = q.name)
where q.name = any($1::text[]) and coalesce(q.hand_maxsize, q.maxsize) >= 0
