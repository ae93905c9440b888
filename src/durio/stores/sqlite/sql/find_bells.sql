select id, queues from worker where namespace = ?1 and has_bell and not rescued
