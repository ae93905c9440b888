select s.type, i.name, lower(i.type), i."notnull", i.pk
from sqlite_schema s left join pragma_table_info(s.name) i
where s.name = 'migration' collate nocase and s.type <> 'trigger'
order by i.cid
