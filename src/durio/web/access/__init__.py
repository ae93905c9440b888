"""Who may use the dashboard: sessions, tokens, the host's hook, users and roles."""
