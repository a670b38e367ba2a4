"""The smallest model server.

What it does is told by SERVER_MODE, and by a request's body.
"""

import functools
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = os.environ.get("SERVER_MODE", "healthy")


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        if MODE == "ends_soon":
            end_once_seen()
        self.reply(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.invoke(Path(os.environ["SM_MODEL_DIR"]), body)

    def invoke(self, folder, body):
        print("asked", body[:100], flush=True)
        if MODE == "refuses":
            self.reply(400, b"that is no question")
            return
        if body.startswith(b"compute "):
            end = time.thread_time() + float(body.removeprefix(b"compute "))
            while time.thread_time() < end:
                pass
        if body.startswith(b"until "):
            while not Path(body.removeprefix(b"until ").decode()).exists():
                time.sleep(0.01)
        answer = {
            "instance": folder.parent.name,
            "greeting": (folder / "greeting.txt").read_text(),
        }
        self.reply(200, json.dumps(answer).encode())

    def reply(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@functools.cache
def end_once_seen():
    """Ends the server a while after it was first found healthy."""
    threading.Timer(1.5, os._exit, (3,)).start()


if MODE == "exits":
    sys.exit("error: the engine was made for another GPU")
print("ready", flush=True)
# Beyond its queue a connection waits for a second, and a slow machine accepts late.
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(
    (os.environ["ROUNDHOUSE_BIND_ADDRESS"], int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Answers
).serve_forever()
