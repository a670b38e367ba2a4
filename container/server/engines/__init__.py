"""Engines behind one protocol: ONNX Runtime on CPU and CUDA, and TensorRT plans."""
