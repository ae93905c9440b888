select distinct w.namespace
from {schema}.worker w
where w.namespace = any($1::text[])
  and w.expires_at > coalesce($2::float8, extract(epoch from clock_timestamp())::float8)
