-- Records: reading, writing, and deleting the expired ones.

-- part: not_expired
(r.expires_at is null or r.expires_at > coalesce(
  :now::float8, extract(epoch from clock_timestamp())::float8
))

-- name: read_record(kind, names, now)
select r.kind, r.name, r.body, r.due_at, r.version from {schema}.record as r
where r.kind = :kind::text and r.name = any(:names::text[]) and {not_expired}

-- name: list_records(kind, first, beyond, after, now, most)
-- Both bounds limit the walk over the index: names with the prefix lie between them.
select r.kind, r.name, r.body, r.due_at, r.version from {schema}.record as r
where r.kind = :kind::text and r.name >= :first::text and r.name < :beyond::text
  and r.name > :after::text and {not_expired}
order by r.name limit :most::int8

-- name: find_due_records(kind, now, most)
-- Also records that are not due yet: the first of them tells when to read again.
-- Without one, the only row has the time of the server and no record.
select due.*, server.now
from (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
) as server
left join (
  select r.kind, r.name, r.body, r.due_at, r.version from {schema}.record as r
  where r.kind = :kind::text and r.due_at is not null and {not_expired}
  order by r.due_at, r.name limit :most::int8
) as due on true
order by due.due_at, due.name

-- name: lock_records(kinds, names, now)
-- only here: SQLite has one writer. The caller sorts by kind and name: all transactions
-- lock records in this order. An expired record is locked, too: the commit replaces it.
-- The lateral subquery is evaluated for each name in turn, by the primary key.
select s.kind, s.name, s.body, s.due_at, s.version, s.is_present
from unnest(:kinds::text[], :names::text[]) as u (kind, name)
cross join lateral (
  select r.kind, r.name, r.body, r.due_at, r.version, {not_expired} as is_present
  from {schema}.record as r
  where r.kind = u.kind and r.name = u.name
  for update
) as s

-- name: write_records(kinds, names, bodies, due_times, ttls, are_new, now)
-- only here: SQLite writes one record at a time. A null body deletes. A record that must be
-- new and is not has no row in the result: another transaction created it after the lock. A
-- deletion of what must be new deletes nothing, for the same reason. Rows are locked in the
-- order of `lock_records`, which sorts bytes, whatever collation the database has.
with put as materialized (
  select u.kind, u.name, u.body, u.due_at, u.is_new, u.ttl + coalesce(
    :now::float8, extract(epoch from clock_timestamp())::float8
  ) as expires_at
  from unnest(:kinds::text[], :names::text[], :bodies::bytea[], :due_times::float8[],
    :ttls::float8[], :are_new::bool[]) as u (kind, name, body, due_at, ttl, is_new)
  order by u.kind collate "C", u.name collate "C"
),
deleted as (
  delete from {schema}.record as r using put
  where put.body is null and not put.is_new
    and r.kind = any(array[put.kind]) and r.name = put.name
),
created as (
  insert into {schema}.record (kind, name, body, due_at, expires_at)
  select kind, name, body, due_at, expires_at from put where body is not null and is_new
  on conflict (kind, name) do nothing
  returning kind, name, version
),
written as (
  insert into {schema}.record (kind, name, body, due_at, expires_at)
  select kind, name, body, due_at, expires_at from put where body is not null and not is_new
  on conflict (kind, name) do update
  set body = excluded.body, due_at = excluded.due_at, expires_at = excluded.expires_at,
    version = default
  returning kind, name, version
)
select kind, name, version from created
union all
select kind, name, version from written

-- name: prune_records(now, most)
-- Records that another transaction has locked are left for the next call.
delete from {schema}.record
where ctid = any(array(
  select r.ctid from {schema}.record as r where r.expires_at <= :now::float8
  order by r.expires_at limit :most::int8
  for update skip locked
))
