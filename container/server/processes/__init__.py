"""Several HTTP processes before one engine owner, talking over local sockets."""
