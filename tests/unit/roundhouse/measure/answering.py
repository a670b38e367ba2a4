"""A small HTTP server in threads, whose answers a test decides."""

from __future__ import annotations

import contextlib
import http.client
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ANSWER = json.dumps(
    {"outputs": [{"name": "embedding", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 0.0]}]}
).encode()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer: `close` ends the connection after it, `silent` sends none, `raw` just that."""

    status: int = 200
    body: bytes = ANSWER
    after_seconds: float = 0.0
    close: bool = False
    silent: bool = False
    headers: str = ""
    raw: bytes | None = None


class Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with self.server.lock:
            self.server.connections += 1
        with contextlib.suppress(ConnectionError):
            while self.rfile.readline() and self.answer_request():
                pass

    def answer_request(self) -> bool:
        headers = http.client.parse_headers(self.rfile)
        body = self.rfile.read(int(headers.get("content-length", 0)))
        with self.server.lock:
            self.server.requests.append((headers, body))
            answer = self.server.answer(len(self.server.requests))
        if answer.raw is not None:
            self.wfile.write(answer.raw)
            return False
        if not answer.silent:
            time.sleep(answer.after_seconds)
            fields = f"Content-Length: {len(answer.body)}\r\nContent-Type: application/json\r\n"
            head = f"HTTP/1.1 {answer.status} Said\r\n{fields}{answer.headers}\r\n"
            self.wfile.write(head.encode() + answer.body)
        return not answer.close


class Server(socketserver.ThreadingTCPServer):
    """Its URL, the requests that came, and the number of connections."""

    daemon_threads, block_on_close, request_queue_size = True, False, 512

    def __init__(self, answer: Callable[[int], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.answer, self.lock = answer, threading.Lock()
        self.requests: list[tuple[http.client.HTTPMessage, bytes]] = []
        self.connections = 0
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/invocations"


@contextlib.contextmanager
def serve(answer: Callable[[int], Answer] = lambda number: Answer()) -> Iterator[Server]:
    """Serve for the time of a test; `answer` takes the number of the request, from 1 on."""
    with Server(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)
