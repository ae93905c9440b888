select id from {schema}.worker where namespace = $1::text
