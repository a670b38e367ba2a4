"""Lengths of a model's real requests, and the time of its engine at their shapes."""
