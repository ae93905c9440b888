delete from {schema}.kept where id = any($1::uuid[])
