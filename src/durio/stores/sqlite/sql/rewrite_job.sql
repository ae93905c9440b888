-- A waiting holder of a key gets new arguments: same id, same place in line, same fence.
update job
set queue = ?2, rank = ?3, state = ?4, task = ?5, payload = ?6, run_at = ?7, opts = ?8,
  umode = ?9, parked_at = null
where id = ?1
