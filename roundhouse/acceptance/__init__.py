"""The first day of an environment: every line of docs/verification.md, tried on its account."""
