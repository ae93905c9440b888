update worker set has_bell = ?2, has_life = ?3 where id = ?1
