select name, body from {schema}.doc where kind = $1::text order by name
