"""TensorRT engines on the GPU of this machine: what it needs, its builds, its servers.

In comes a machine, out go what it lacks, engines and servers. `demo --gpu` and the GPU's rows call
it.
"""
