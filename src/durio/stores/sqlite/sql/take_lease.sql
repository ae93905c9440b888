insert into lease (name, holder, token, boot, expires_at) values (?1, ?2, 1, ?3, ?5)
on conflict (name) do update
set holder = ?2, token = token + (holder <> ?2), boot = ?3, expires_at = ?5
where holder = ?2 or boot <> ?3 or expires_at <= ?4
returning token
