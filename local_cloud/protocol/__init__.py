"""AWS's wire formats of the services that are emulated here.

In come HTTP requests, out go operations with their input, and answers or AWS's errors.
"""
