select name, body from doc where kind = ?1 order by name
