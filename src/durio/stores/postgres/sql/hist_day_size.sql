-- Bytes of one day of history; null: there is no such day.
select pg_relation_size(to_regclass('{schema}.' || $1::text))
