select name from sqlite_schema where type = 'trigger' and name glob 'durio_move_*'
