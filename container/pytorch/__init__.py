"""PyTorch programs (`model.pt2`): the scan that a file must pass, and their execution.

Builds judge programs with it, and the Python server runs them. torch is imported when it is used.
"""
