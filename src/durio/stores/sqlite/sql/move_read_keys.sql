select key, id, mode, digest, until from uniq where key > ?1 order by key limit ?2
