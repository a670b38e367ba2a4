"""The HTTP server before Triton: Triton reads only what this package has checked and written again.

It starts tritonserver, asks it through its SageMaker port, and ends with it.
"""
