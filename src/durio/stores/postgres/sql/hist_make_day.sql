-- A table of its own first, so that the parent's lock is needed for a moment only.
create table {schema}.{day} (
  like {schema}.hist including defaults,
  check (finished_at >= {first} and finished_at < {next})
)
