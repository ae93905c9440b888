select answered_at, answer from command where id = ?1
