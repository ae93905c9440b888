-- A join by `any(array[...])` can only be a probe.
update {schema}.kept as k set died_no = d.number
from unnest($1::uuid[], $2::int8[]) as d (id, number)
where k.id = any(array[d.id])
returning k.lane, k.task, k.errors[cardinality(k.errors)], k.reason
