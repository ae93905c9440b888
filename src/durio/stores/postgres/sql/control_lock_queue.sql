select paused, closed, hand_maxsize from {schema}.queue where name = $1::text
for no key update
