"""The compile check: NVIDIA's own parser and builder on a network, with no GPU."""
