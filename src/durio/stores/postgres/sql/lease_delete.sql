delete from {schema}.worker where id = any($1::int4[]) returning id
