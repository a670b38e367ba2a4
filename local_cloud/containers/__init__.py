"""Images without Docker: the processes that they would run, their logs and their clients.

In come a container's definition and its model, out goes a server on a port. Hosting calls it.
"""
