"""What answers: the Python serving image, the Triton packaging and the caller.

Knows engines, not deployments.
"""
