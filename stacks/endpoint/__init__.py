"""One endpoint as plain data: models, config, role, and what must be said before it is deployed."""
