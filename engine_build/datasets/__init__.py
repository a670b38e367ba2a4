"""Datasets, and what networks take of them."""
