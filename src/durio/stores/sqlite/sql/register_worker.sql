insert into worker (namespace, queues, info, boot, expires_at, has_bell, has_life)
values (?1, ?2, ?3, ?4, ?5, 0, 0)
returning id
