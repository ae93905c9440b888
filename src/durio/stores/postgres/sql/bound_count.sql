-- A bound begins to hold. Nothing makes jobs `blocked` yet: they would be counted here too.
with e as (delete from {schema}.entered where lane = any($1::text[]))
update {schema}.queue q
set is_over = 0, depth = (select count(*) from {schema}.ready r where r.lane = q.name)
  + (select count(*) from {schema}.sched s where s.lane = q.name)
where q.name = any($1::text[]) and coalesce(q.hand_maxsize, q.maxsize) >= 0
