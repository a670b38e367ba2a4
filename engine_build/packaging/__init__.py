"""From an engine to a published archive.

Model repository, manifest, deterministic bytes, atomic publish.
"""
