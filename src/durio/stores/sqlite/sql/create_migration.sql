create table if not exists migration (
  number integer primary key,
  name text not null,
  checksum text not null,
  applied_at real not null
) strict
