select to_regclass('{schema}.migration') is not null
