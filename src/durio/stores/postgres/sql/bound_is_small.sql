-- By the sizes of the lanes alone: whether they cannot hold as many as $1 jobs. No row of
-- theirs is smaller than 48 bytes.
select (pg_relation_size('{schema}.ready') + pg_relation_size('{schema}.sched')) / 48
  < $1::int8
