-- Asked after the insert, by a younger snapshot: was one of these stored by another try, and
-- is over already? Only a repeat ($2) has to look in all that is over. Many an `exists` may
-- be answered by one walk through the whole table; a value is always looked for by its id.
select 1 from unnest($1::uuid[]) i (id)
where (select 1 from {schema}.repeated p where p.id = i.id) is not null
  or ($2::bool and (
    (select 1 from {schema}.kept k where k.id = i.id) is not null
    or (select 1 from {schema}.hist h where h.id = i.id limit 1) is not null
  ))
limit 1
