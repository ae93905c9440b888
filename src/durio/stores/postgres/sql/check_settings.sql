select s.name, current_setting(s.name) from unnest($1::text[]) as s (name)
