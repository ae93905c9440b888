-- Nobody will answer these any more.
update command set answered_at = ?2, answer = '' where worker = ?1 and answered_at is null
