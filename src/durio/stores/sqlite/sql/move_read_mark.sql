select body from doc where kind = 'move' and name = ''
