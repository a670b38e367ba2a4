"""Several HTTP workers before one supervisor, which has the engine."""
