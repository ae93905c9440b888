-- Asked once is asked: a second time writes nothing.
update {schema}.run set cancel = true where id = any($1::uuid[]) and not cancel
