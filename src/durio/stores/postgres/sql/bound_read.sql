select q.name, q.maxsize, q.is_default from {schema}.queue q where q.name = any($1::text[])
