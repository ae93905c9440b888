select 1 from worker where id = ?1 and boot = ?2 and expires_at > ?3 and not rescued
