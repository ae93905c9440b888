-- What workers hold, one worker after the other, $2 jobs at most; null: all. Nothing but the
-- worker may lead to its jobs: by id the planner would walk over those of everybody.
select r.worker, r.id
from unnest($1::int4[]) as w (id)
cross join lateral (
  select h.worker, h.id from {schema}.run as h where h.worker = w.id offset 0
) as r
order by r.worker, r.id
limit $2::int4
