"""The servers before engines on an NVIDIA GPU: one experiment, and what it takes along."""
