"""PyTorch programs (`model.pt2`): the scan that a file must pass, and their execution.

In comes a file, out goes a program that runs. Builds judge programs with it, and the Python server
runs them. torch is imported when it is used.
"""
