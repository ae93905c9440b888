select current_setting('server_version'), current_user::text, pg_is_in_recovery(),
  current_setting('default_transaction_read_only')::bool
