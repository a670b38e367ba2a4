"""A model server that takes a fixed time for each request and answers one at a time.

It waits and computes nothing, so that a machine of two cores can hold several such instances.
"""

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS = 0.05
ANSWER = b'{"model_name": "m", "outputs": []}'
ADDRESS = (os.environ["ROUNDHOUSE_BIND_ADDRESS"], int(os.environ["SAGEMAKER_BIND_TO_PORT"]))
engine = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """Answers /ping at once, and every request in its turn."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a health check."""
        self.answer(b"")

    def do_POST(self) -> None:
        """Answer a request once the engine is free."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with engine:
            time.sleep(SECONDS)
        self.answer(ANSWER)

    def answer(self, body: bytes) -> None:
        """Send one response."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """Takes many connections at once."""

    daemon_threads = True
    request_queue_size = 256


Server(ADDRESS, Handler).serve_forever()
