-- SQLite itself keeps every process from changing this table, whatever code it runs.
-- An insert is refused after it happened: one that finds its row stored does no harm.
create trigger {name} {when} on {table} {unless}
begin
  select raise(abort, {text});
end
