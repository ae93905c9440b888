update command set answered_at = ?3, answer = ?4
where id = ?1 and worker = ?2 and answered_at is null
