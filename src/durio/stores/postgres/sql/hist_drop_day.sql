drop table {schema}.{day}
