-- Records: small documents by kind and name.

-- The version is the number of the row. A write replaces the row, and autoincrement never
-- uses a number again.
create table record (
  version integer primary key autoincrement,
  kind text not null,
  name text not null,
  body blob not null,
  due_at real,
  expires_at real,                      -- absent from then on; upkeep deletes the row
  unique (kind, name)
) strict;

create index record_due on record (kind, due_at, name) where due_at is not null;
create index record_expires on record (expires_at) where expires_at is not null;

-- `doc` and `command` stay until the next migration, because workers and clients of the
-- release before go on using them. What workers publish there is copied, now and later.
-- The body of a signature is the number of the day on which a worker last published it.
insert into record (kind, name, body, expires_at)
select kind, name, cast(body as blob),
  case when kind glob 'signature:*' then (cast(body as integer) + 31) * 86400.0 end
from doc
where kind glob 'task:*' or kind glob 'signature:*'
order by kind, name;

create trigger doc_inserted after insert on doc
when new.kind glob 'task:*' or new.kind glob 'signature:*'
begin
  delete from record where kind = new.kind and name = new.name;
  insert into record (kind, name, body, expires_at)
  values (new.kind, new.name, cast(new.body as blob),
    case when new.kind glob 'signature:*' then (cast(new.body as integer) + 31) * 86400.0 end);
end;

create trigger doc_updated after update on doc
when new.kind glob 'task:*' or new.kind glob 'signature:*'
begin
  delete from record where kind = new.kind and name = new.name;
  insert into record (kind, name, body, expires_at)
  values (new.kind, new.name, cast(new.body as blob),
    case when new.kind glob 'signature:*' then (cast(new.body as integer) + 31) * 86400.0 end);
end;
