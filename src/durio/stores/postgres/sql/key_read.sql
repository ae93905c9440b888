select u.key, u.id, u.mode, u.digest, u.until
from {schema}.uniq u where u.key = any($1::bytea[])
