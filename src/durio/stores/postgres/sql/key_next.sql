-- The next $2 keys without a window, locked but for those that somebody asks for right now.
select u.key from {schema}.uniq as u
where u.key > $1::bytea and u.until is null
order by u.key
limit $2::int4
for update skip locked
