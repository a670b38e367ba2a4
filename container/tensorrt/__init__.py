"""TensorRT's runtime and CUDA's as Roundhouse uses them.

The builder measures a plan with the code that serves it.
"""
