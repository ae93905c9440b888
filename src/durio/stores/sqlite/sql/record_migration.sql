insert into migration (number, name, checksum, applied_at) values (?1, ?2, ?3, ?4)
