-- Of keys that are locked: those whose holder is over, and could not let go of them.
delete from {schema}.uniq as u
where u.key = any($1::bytea[])
  and (select 1 from {schema}.job as b where b.id = u.id) is null
returning 1
