"""The same inputs in every runtime and server of a machine: latency, throughput, accuracy.

In come MiniLM and networks with random weights, out goes one JSON. `make bench` calls it, and
benchmarks.gpu its servers.
"""
