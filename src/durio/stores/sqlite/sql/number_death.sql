-- Errors that are no JSON must not keep a job from dying.
update job set died_no = ?2 where id = ?1
returning coalesce(
  case when json_valid(errors) then json_extract(errors, '$[#-1].type') end, reason, ''
)
