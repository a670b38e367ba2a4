"""TensorRT plans: what goes into them, how they are made, read back and run.

In come networks and a precision, out go plans and their layers. Steps call it; every process that
needs a GPU is started here.
"""
