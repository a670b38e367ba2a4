"""The cost of padding and truncation in a model's real requests, and profiles that lower it."""
