select name from doc where kind = ?1 and name >= ?2 and name < ?3
