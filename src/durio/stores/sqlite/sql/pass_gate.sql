-- The gate out of `running`: model/transitions.py in SQL, and nothing else leaves by
-- another door but `done`.
--
-- ?1 id  ?2 claim_no  ?3 worker  ?4 kind  ?5 run_at or null  ?6 error or null  ?7 reason
-- ?8 guilty  ?9 now  ?10 and ?11 when it may go if cancelled, if dead  ?12 bucket  ?13 count
-- ?14 nobody here knows its task
--
-- A loss is recorded as an error only where it charges or convicts.
update job
set
  state = gate.way,
  worker = null,
  alone = 0,
  cancel = 0,
  run_at = iif(gate.way = 0, ?5, run_at),
  parked_at = iif(?14, coalesce(parked_at, ?9), null),
  reason = iif(gate.way = 5, ?7, null),
  retried = retried + (gate.way < 5 and ?4 = 1),
  snoozed = snoozed + (gate.way < 5 and ?4 = 2),
  losses = losses + gate.charged,
  lost = case
    when gate.way >= 5 or ?4 = 3 then lost
    when ?4 = 6 then lost + gate.charged
    else 0
  end,
  errors = case
    when ?6 is null or (?4 = 6 and not gate.charged and gate.way <> 5) then errors
    else json_insert(
      case
        when not json_valid(coalesce(errors, '?')) or json_type(errors) <> 'array' then '[]'
        when json_array_length(errors) >= 50 then json_remove(errors, '$[0]')
        else errors
      end,
      '$[#]', json(?6)
    )
  end,
  progress = iif(gate.way >= 5, progress, null),
  finished_at = iif(gate.way >= 5, ?9, null),
  died_at = iif(gate.way = 5, ?9, null),
  gone_at = case gate.way when 6 then ?10 when 5 then ?11 end,
  bucket = iif(gate.way = 6, ?12, null),
  keep_count = iif(gate.way = 6, ?13, null)
from (
  select
    seq as gate_seq,
    ?4 = 6 and not cancel and lost < 2 as charged,
    case
      when cancel or ?4 = 5 then 6
      when ?4 = 4 or (?4 = 6 and lost >= 2 and (alone or ?8)) then 5
      when ?5 > ?9 then 0
      else 2
    end as way
  from job
  where id = ?1 and claim_no = ?2 and worker is ?3 and state = 3
) as gate
where seq = gate.gate_seq
returning state, ukey, umode, queue, task
