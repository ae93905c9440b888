select maxsize, is_default from queue where name = ?1
