select id, state from job where id in (select unhex(value) from json_each(?1))
