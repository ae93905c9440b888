select 1 from {schema}.hist_default limit 1
