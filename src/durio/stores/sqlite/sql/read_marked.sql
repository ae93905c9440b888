select name from queue indexed by queue_guarded
where (maxsize is not null or hand_maxsize is not null or is_over or closed) and is_over
  and name >= ?1 and name < ?2
