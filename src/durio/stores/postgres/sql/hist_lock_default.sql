lock table {schema}.hist_default in access exclusive mode
