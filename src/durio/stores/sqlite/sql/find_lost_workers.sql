select id from worker
where rescued or boot <> ?1 or expires_at <= ?2
order by id
