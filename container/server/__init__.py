"""The Python serving image; each layer imports only those before it: types, codecs, runtime,
batcher, data plane, transport.
"""
