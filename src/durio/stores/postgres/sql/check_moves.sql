select name, body from {schema}.doc where kind = 'move' order by name
