select key, id, mode, digest, until from {schema}.uniq where key = any($1::bytea[])
