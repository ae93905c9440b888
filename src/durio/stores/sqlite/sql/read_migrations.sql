select number, name, checksum from migration order by number
