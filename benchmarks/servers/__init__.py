"""Shared by benchmarks of servers: candidates, their load, paired rounds, programs."""
