delete from {schema}.worker where id = $1::int4 returning id
