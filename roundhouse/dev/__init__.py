"""For this repository and for people who try it: demo, environments, doctor, platform data.

In comes this machine, out go environments, a demonstration, rows of data. `make` calls it.
"""
