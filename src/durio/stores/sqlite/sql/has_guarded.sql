-- Mostly none, and then the index is empty: that is all that plain queues pay.
select 1 from queue indexed by queue_guarded
where maxsize is not null or hand_maxsize is not null or is_over or closed
limit 1
