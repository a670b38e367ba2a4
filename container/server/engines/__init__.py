"""What runs a batch: one protocol, and ONNX Runtime (CPU, CUDA) and TensorRT behind it."""
