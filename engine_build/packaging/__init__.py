"""From an engine to a published archive: model repository, manifest, deterministic bytes, atomic
publish.
"""
