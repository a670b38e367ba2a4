"""Checkpoints of text generators: fetched, quantized, compared with their source, published."""
