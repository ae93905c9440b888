-- Only the holder lets go: a successor may own the key by now.
delete from uniq where key = ?1 and id = ?2
