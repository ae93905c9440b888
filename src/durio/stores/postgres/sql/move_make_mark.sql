-- Of two at once one begins; the other waits for its commit, and finds the mark.
insert into {schema}.doc (kind, name, body) values ($1::text, $2::text, $3::text)
on conflict (kind, name) do nothing
returning 1
