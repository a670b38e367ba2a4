"""The state of an environment: files, locks, and what its account runs."""
