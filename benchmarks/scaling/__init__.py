"""The scaling run: a load before a real endpoint of the local cloud, its instances counted second
by second, and drawn.
"""
