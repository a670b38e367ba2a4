"""TensorRT plans: what goes into them, how they are made, read back and run.

Every process that needs a GPU is started here.
"""
