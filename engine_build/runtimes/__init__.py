"""What can execute a network on this machine, side by side; needs numpy and what it measures,
nothing else.
"""
