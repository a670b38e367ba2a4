"""The smallest model server.

What it does is told by SERVER_MODE, and it can hold MODELS_HELD target models at once.
"""

import functools
import hashlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = os.environ.get("SERVER_MODE", "healthy")
MODELS_HELD = int(os.environ.get("MODELS_HELD", "1"))
loaded = {}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        if MODE == "ends_soon":
            end_once_seen()
        self.reply(200 if MODE != "never_healthy" else 503)

    def do_DELETE(self):
        name = self.path.split("/")[2]
        self.reply(200 if loaded.pop(name, None) else 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/models":
            self.load(json.loads(body))
        elif self.path == "/invocations":
            self.invoke(Path(os.environ["SM_MODEL_DIR"]), body)
        elif self.path.split("/")[2] in loaded:
            self.invoke(Path(loaded[self.path.split("/")[2]]), body)
        else:
            self.reply(404)

    def load(self, request):
        if request["model_name"] in loaded:
            self.reply(409)
        elif len(loaded) >= MODELS_HELD:
            self.reply(507, b"no memory left")
        else:
            loaded[request["model_name"]] = request["url"]
            self.reply(200)

    def invoke(self, folder, body):
        print("asked", body[:100], flush=True)
        if body == b"fault" or MODE == "refuses":
            self.reply(400, b"that is no question")
            return
        if MODE == "held":
            wait_for(Path(os.environ["HELD_UNTIL"]))
        if body.startswith(b"wait "):
            time.sleep(float(body.removeprefix(b"wait ")))
        if body.startswith(b"compute "):
            end = time.thread_time() + float(body.removeprefix(b"compute "))
            while time.thread_time() < end:
                pass
        if body.startswith(b"until "):
            wait_for(Path(body.removeprefix(b"until ").decode()))
        if body == b"end":
            os._exit(3)
        answer = {
            "instance": folder.parent.name,
            "greeting": (folder / "greeting.txt").read_text(),
            "body": body.decode(errors="replace")[:100],
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "content_type": self.headers["Content-Type"],
            "target_model": self.headers["X-Amzn-SageMaker-Target-Model"],
            "attributes": self.headers["X-Amzn-SageMaker-Custom-Attributes"],
            "loaded": len(loaded),
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


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


if MODE == "starts_once":
    # The first instance is there at once, its replacement not while anybody waits.
    once = Path(os.environ["STARTED"])
    if once.exists():
        time.sleep(600)
    once.touch()
if MODE == "exits":
    sys.exit("error: the engine was made for another GPU")
print("error: still thinking" if MODE == "never_healthy" else "ready", flush=True)
# Beyond its queue a connection waits for a second, and a slow machine accepts late.
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(
    (os.environ["ROUNDHOUSE_BIND_ADDRESS"], int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Answers
).serve_forever()
