insert into {schema}.queue (name, hand_maxsize) values ($1::text, $2::int8)
on conflict (name) do update set hand_maxsize = excluded.hand_maxsize
