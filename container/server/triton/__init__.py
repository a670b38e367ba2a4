"""Triton behind the HTTP server: it reads only what this package has checked and written again.

In come KServe v2 requests, out go Triton's answers, and the health of its models. The image's start
calls `app`.
"""
