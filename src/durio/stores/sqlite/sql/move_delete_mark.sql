delete from doc where kind = 'move' and name = ''
