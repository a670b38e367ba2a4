"""Engines behind one protocol: ONNX Runtime on CPU and CUDA, PyTorch, and TensorRT plans.

In comes an archive's folder, out go arrays for rows. The batcher calls them, `loading` makes them.
"""
