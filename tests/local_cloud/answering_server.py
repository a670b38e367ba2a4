"""The smallest model server: greetings, lines of server-sent events, adapters, and a drain.

It greets with the model's greeting.txt, or with GREETING. A request in JSON says how many `events`
it wants, after how many `seconds` each. On SIGTERM the server ends once nothing is in flight; with
SERVER_MODE=exits it never answers.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(os.environ["SM_MODEL_DIR"])
PORT = int(os.environ.get("SAGEMAKER_BIND_TO_PORT", "8080"))
adapters = {}
in_flight = 0
turn = threading.Condition()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.reply(200)

    def do_DELETE(self):
        self.reply(200 if adapters.pop(self.path.split("/")[2], None) else 404)

    def do_POST(self):
        global in_flight
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        with turn:
            in_flight += 1
        try:
            self.answer(json.loads(body) if body.startswith(b"{") else {})
        except BrokenPipeError:
            print("the client has left", flush=True)
        finally:
            with turn:
                in_flight -= 1
                turn.notify_all()

    def answer(self, request):
        if self.path == "/adapters":
            adapters[request["name"]] = sorted(path.name for path in Path(request["src"]).iterdir())
            self.reply(200)
            return
        adapter = self.headers.get("X-Amzn-SageMaker-Adapter-Identifier")
        file = FOLDER / "greeting.txt"
        answer = {
            "instance": FOLDER.parent.name,
            "greeting": file.read_text() if file.exists() else os.environ.get("GREETING", "hi"),
            "adapter": adapter,
            "files": adapters.get(adapter),
        }
        if not request.get("stream"):
            time.sleep(request.get("seconds", 0))
            self.reply(200, json.dumps(answer).encode())
            return
        self.stream(request, answer)

    def stream(self, request, answer):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(request.get("events", 1)):
            time.sleep(request.get("seconds", 0))
            event = json.dumps({**answer, "number": number, "text": "Île 東京"}, ensure_ascii=False)
            self.chunk(f"data: {event}\n\n".encode())
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def chunk(self, content):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))

    def reply(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def end(number, frame):
    threading.Thread(target=drain, daemon=True).start()


def drain():
    with turn:
        turn.wait_for(lambda: in_flight == 0)
    time.sleep(0.1)
    os._exit(0)


if os.environ.get("SERVER_MODE") == "exits":
    sys.exit("error: the engine was made for another GPU")
signal.signal(signal.SIGTERM, end)
# Beyond its queue a connection waits for a second, and a slow machine accepts late.
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(("127.0.0.1", PORT), Answers).serve_forever()
