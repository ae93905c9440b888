select count(*) from {schema}.tally
