-- How large the next jobs are: a batch is bounded by that, too.
select seq, length(payload) + coalesce(length(result), 0) + coalesce(length(errors), 0)
  + coalesce(length(opts), 0) + coalesce(length(progress), 0)
from job where seq > ?1 order by seq limit ?2
