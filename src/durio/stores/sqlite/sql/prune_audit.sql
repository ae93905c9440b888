-- All but the newest ?1.
delete from audit
where seq in (
  select seq from audit
  where seq <= (select seq from audit order by seq desc limit 1 offset ?1)
  order by seq limit ?2
)
