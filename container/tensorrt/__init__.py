"""TensorRT's runtime and CUDA's as Roundhouse uses them.

In comes a plan's file, out go arrays for arrays. The Python server and builds call it, so the
builder measures a plan with the code that serves it.
"""
