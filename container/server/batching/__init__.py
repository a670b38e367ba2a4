"""Dynamic batching: which waiting rows run next, and which run together.

In come rows of requests, out go their answers. The data plane calls it, and it calls an engine.
"""
