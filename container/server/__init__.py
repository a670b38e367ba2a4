"""The HTTP server of every serving image, over an engine of this process, Triton or vLLM.

Each layer imports only those before it: types, codecs, engines, batching, data plane, http,
supervisor, and the three that answer: app (an engine of this process), triton, vllm.
"""
