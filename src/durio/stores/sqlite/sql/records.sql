-- Records: reading, writing, and deleting the expired ones.

-- name: read_record(kind, names, now)
-- `names` is a JSON array; the records come in its order.
select kind, name, body, due_at, version from json_each(:names) as each
cross join record on kind = :kind and name = each.value
where expires_at is null or expires_at > :now
order by each.key

-- name: list_records(kind, first, beyond, after, now, most)
-- Both bounds limit the walk over the index: names with the prefix lie between them.
select kind, name, body, due_at, version from record
where kind = :kind and name >= :first and name < :beyond and name > :after
  and (expires_at is null or expires_at > :now)
order by name limit :most

-- name: find_due_records(kind, now, most)
-- Also records that are not due yet: the first of them tells when to read again.
select kind, name, body, due_at, version from record
where kind = :kind and due_at is not null and (expires_at is null or expires_at > :now)
order by due_at, name limit :most

-- name: write_record(kind, name, body, due_at, expires_at)
-- only here: one record; PostgreSQL writes and deletes all records of a commit at once.
insert or replace into record (kind, name, body, due_at, expires_at)
values (:kind, :name, :body, :due_at, :expires_at)
returning version

-- name: delete_record(kind, name)
-- only here: see write_record.
delete from record where kind = :kind and name = :name

-- name: prune_records(now, most)
delete from record
where version in (
  select version from record where expires_at <= :now order by expires_at limit :most
)
