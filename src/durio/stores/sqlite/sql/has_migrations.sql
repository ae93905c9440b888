select 1 from sqlite_schema where type = 'table' and name = 'migration'
