"""The tables that users choose by, on the GPU of a machine: engines, servers, what they cost.

In come networks with random weights, out goes one JSON, whose tables `page` prints. `make bench
BENCH=h100` calls it.
"""
