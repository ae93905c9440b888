select answered_at, answer from {schema}.command where id = $1::int8
