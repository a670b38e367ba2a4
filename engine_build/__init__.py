"""Turns a model's spec into a published engine: options -> order -> steps -> commands -> run."""
