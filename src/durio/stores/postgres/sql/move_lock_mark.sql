select body from {schema}.doc where kind = 'move' and name = $1::text for update
