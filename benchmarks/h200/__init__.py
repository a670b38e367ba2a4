"""The servers before engines on an NVIDIA GPU.

What to transfer to a machine without a package index, and one experiment.
"""
