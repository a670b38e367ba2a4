"""Engines and networks that no lock names."""
