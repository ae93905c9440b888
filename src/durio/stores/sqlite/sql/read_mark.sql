-- The newest arrival and its moment, and all deaths; a count follows.
select coalesce((select max(seq) from job), 0),
  coalesce((select created_at from job where seq = (select max(seq) from job)), 0),
  coalesce((select dead from tally where queue = '' and task = '' and error_type = ''), 0)
