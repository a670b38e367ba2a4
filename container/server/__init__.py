"""The Python serving image.

Each layer imports only those before it: types, codecs, runtime, batcher, data plane, transport.
"""
