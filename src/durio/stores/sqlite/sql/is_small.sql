-- By the two ends of the table: whether it holds fewer than ?1 jobs, final ones included.
select coalesce(max(seq), 0) - (select coalesce(min(seq), 1) from job) + 1 < ?1 from job
