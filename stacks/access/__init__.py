"""Who may do what: resource names, policy statements, roles."""
