delete from doc where kind = ?1 and cast(body as integer) < ?2
