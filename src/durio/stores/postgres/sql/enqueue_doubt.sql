-- Asked after the insert, by a younger snapshot: was one of these stored by another try, and
-- is over already? Only a repeat ($2) has to look in all that is over.
select 1 from unnest($1::uuid[]) i (id)
where exists (select 1 from {schema}.repeated p where p.id = i.id)
  or ($2::bool and (
    exists (select 1 from {schema}.kept k where k.id = i.id)
    or exists (select 1 from {schema}.hist h where h.id = i.id)
  ))
limit 1
