-- Never inserts: a rescued worker stays dead.
update worker set expires_at = ?2, boot = ?3, vitals = coalesce(?4, vitals)
where id = ?1 and not rescued and boot = ?3
returning namespace
