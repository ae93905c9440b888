alter table {schema}.hist attach partition {schema}.{day}
for values from ({first}) to ({next})
