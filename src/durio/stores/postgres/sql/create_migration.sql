create table if not exists {schema}.migration (
  number int4 primary key,
  name text not null,
  checksum text not null,
  applied_at float8 not null
)
