-- Records: small documents by kind and name.

create table {schema}.record (
  kind text collate "C" not null,
  name text collate "C" not null,
  body bytea not null,
  -- From one counter: every write takes the next number, also of a name that was deleted.
  version int8 generated always as identity,
  due_at float8,
  expires_at float8,                        -- absent from then on; upkeep deletes the row
  primary key (kind, name)
) with (fillfactor = 50);

create index record_due on {schema}.record (kind, due_at, name) where due_at is not null;
create index record_expires on {schema}.record (expires_at) where expires_at is not null;

-- `doc` and `command` stay until the next migration, because workers and clients of the
-- release before go on using them. What workers publish there is copied, now and later.
-- The body of a signature is the number of the day on which a worker last published it.
create function {schema}.document_expires_at(kind text, body text) returns float8
language sql immutable as $$
  select case when kind like 'signature:%' then
    case when body ~ '^[0-9]{1,9}$' then (body::int4 + 31) * 86400.0::float8 else 0.0 end
  end
$$;

insert into {schema}.record (kind, name, body, expires_at)
select kind, name, convert_to(body, 'UTF8'), {schema}.document_expires_at(kind, body)
from {schema}.doc
where kind like 'task:%' or kind like 'signature:%'
order by kind, name;

-- It runs with the rights of the schema's owner: a role of the release before that has its
-- rights on the tables of then has none on `record`.
create function {schema}.copy_document() returns trigger language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into {schema}.record (kind, name, body, expires_at)
  values (new.kind, new.name, convert_to(new.body, 'UTF8'),
    {schema}.document_expires_at(new.kind, new.body))
  on conflict (kind, name) do update
  set body = excluded.body, expires_at = excluded.expires_at, version = default;
  return null;
end
$$;

revoke all on function {schema}.copy_document() from public;

create trigger copy_document after insert or update on {schema}.doc
for each row when (new.kind like 'task:%' or new.kind like 'signature:%')
execute function {schema}.copy_document();
