update queue set depth = depth + ?2 where name = ?1
