"""TensorRT engines on the GPU of this machine: what it needs, its servers, its bundle."""
