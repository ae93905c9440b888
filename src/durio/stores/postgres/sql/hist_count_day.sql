select count(*) from {schema}.{day}
