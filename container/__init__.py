"""What answers: the Python serving image, the Triton packaging and the caller; knows engines, not
deployments.
"""
