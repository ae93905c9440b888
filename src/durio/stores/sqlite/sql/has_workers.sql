select 1 from worker where namespace = ?1 and boot = ?2 and expires_at > ?3 limit 1
