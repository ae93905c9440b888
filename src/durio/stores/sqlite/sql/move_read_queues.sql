select name, paused, closed, maxsize, is_default, hand_maxsize from queue order by name
