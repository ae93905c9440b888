select kind, name, body from doc where kind <> 'move' order by kind, name
