"""Explicit INT8: which layers, their ranges, the Q/DQ network, and what each layer costs."""
