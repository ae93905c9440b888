-- null leaves a thing as it is.
insert into queue (name, paused, closed) values (?1, coalesce(?2, 0), coalesce(?3, 0))
on conflict (name) do update
set paused = coalesce(?2, paused), closed = coalesce(?3, closed)
