"""The local Application Auto Scaling.

In come targets and policies, out go counts of variants and copies. The emulator calls it.
"""
