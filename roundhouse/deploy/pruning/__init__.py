"""Engines, networks and checkpoints that no lock names."""
