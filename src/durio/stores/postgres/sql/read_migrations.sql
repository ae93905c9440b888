select number, name, checksum from {schema}.migration order by number
