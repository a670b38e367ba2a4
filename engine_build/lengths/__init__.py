"""Lengths of a model's real texts, the cost of padding them, and cheaper profiles and buckets."""
