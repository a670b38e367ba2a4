"""The scaling run.

A load before a real endpoint of the local cloud, its instances counted second by second, and drawn.
"""
