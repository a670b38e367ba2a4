"""TensorRT's runtime and CUDA's as Roundhouse uses them.

What judges a plan and what serves it run the same lines.
"""
