insert into audit (at, namespace, who, verb, target, jobs) values (?1, ?2, ?3, ?4, ?5, ?6)
returning seq
