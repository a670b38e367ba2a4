"""A server, put together: one model in one process, one model in several, or many models."""
