"""Bytes to requests and answers to bytes: KServe v2 JSON, its binary extension, plain texts.

Pure.
"""
