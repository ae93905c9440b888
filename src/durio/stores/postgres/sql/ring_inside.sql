-- In the caller's own transaction: once per lane, however often it is said there.
select pg_notify($1::text, n.payload) from unnest($2::text[]) n(payload)
