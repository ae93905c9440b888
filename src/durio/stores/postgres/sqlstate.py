"""What the server's five letters mean, for those that we act on in more than one place."""

UNIQUE_VIOLATION = "23505"
FAILED_TRANSACTION = "25P02"  # a statement of it has failed: it can only be rolled back
READ_ONLY = "25006"
NOT_SERIALIZABLE = "40001"
DEADLOCK = "40P01"
NO_RIGHT = "42501"
LOCKED = "55P03"  # a lock was not free within lock_timeout
