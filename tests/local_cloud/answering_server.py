"""The smallest model server; with SERVER_MODE=exits it never answers."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.reply(200)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        folder = Path(os.environ["SM_MODEL_DIR"])
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


if os.environ.get("SERVER_MODE") == "exits":
    sys.exit("error: the engine was made for another GPU")
print("ready", flush=True)
# Beyond its queue a connection waits for a second, and a slow machine accepts late.
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(
    (os.environ["ROUNDHOUSE_BIND_ADDRESS"], int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Answers
).serve_forever()
