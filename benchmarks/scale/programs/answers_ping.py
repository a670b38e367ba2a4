"""A model server that is healthy at once and serves nothing, where only deploying is measured."""

import os
import socket

HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
NOTHING = b"this stand-in of a deployment benchmark serves nothing"
HEAD = b"HTTP/1.1 501 Not Implemented\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
REFUSAL = HEAD % len(NOTHING) + NOTHING
ADDRESS = (os.environ["ROUNDHOUSE_BIND_ADDRESS"], int(os.environ["SAGEMAKER_BIND_TO_PORT"]))

with socket.create_server(ADDRESS) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            request = connection.recv(65536)
            connection.sendall(HEALTHY if request.startswith(b"GET /ping ") else REFUSAL)
