"""Bytes to requests and answers to bytes: KServe v2 JSON, its binary extension, plain texts.

Pure. The data plane and the server before Triton call it.
"""
