"""The same inputs in every runtime and server of a machine: latency, throughput, accuracy."""
