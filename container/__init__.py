"""What answers: the Python serving image, the Triton packaging and the caller.

In come an engine's archive and requests, out go answers. It knows engines, not deployments: images
run it, builds measure with its TensorRT, the command sends requests with its clients.
"""
