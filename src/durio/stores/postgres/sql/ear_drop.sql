delete from {schema}.lease l where l.name = $1::text
