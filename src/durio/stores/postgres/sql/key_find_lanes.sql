-- Where the holders of these keys are, as far as anybody knows before they are locked.
-- A join by `any(array[...])` can only be a probe.
select distinct j.lane
from {schema}.uniq u join {schema}.job j on j.id = any(array[u.id])
where u.key = any($1::bytea[])
