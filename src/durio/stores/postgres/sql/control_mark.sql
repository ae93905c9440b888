-- The newest id of all that a hand may meet, and all deaths.
select
  greatest(
    (select id from {schema}.job order by id desc limit 1),
    (select id from {schema}.kept order by id desc limit 1)
  ),
  coalesce(
    (select dead from {schema}.tally where lane = '' and task = '' and error_type = ''), 0
  )
