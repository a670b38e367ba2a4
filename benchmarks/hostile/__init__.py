"""Clients that no server should suffer from, and what they send."""
