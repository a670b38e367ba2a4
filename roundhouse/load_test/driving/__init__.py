"""The load processes: who starts them, how they send, what they count."""
