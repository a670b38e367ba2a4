"""What an instance can answer, and how fast, derived from what the lock says was measured."""
