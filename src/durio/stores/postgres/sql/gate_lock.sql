-- Bounded queues that are about to change their depth: locked first, and in order.
select q.name from {schema}.queue as q
where (q.maxsize is not null or q.hand_maxsize is not null)
  and coalesce(q.hand_maxsize, q.maxsize) >= 0 and q.name = any(
  $2::text[] || array(select b.lane from {schema}.job as b where b.id = any($1::uuid[]))
)
order by q.name
for no key update
