select at, who, verb, target, jobs from audit
where ?1 is null or namespace = ?1
order by seq desc limit ?2
