"""A forge on a port of this machine: GitHub's and GitLab's comments, issues, pull requests."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

REPOSITORY = "acme/models"


class ForgeServer(ThreadingHTTPServer):
    """`responses` are given first, one a request: (status, headers, text).

    `login` None: /user answers 403. `texts`: what exists by kind (comment, issue, pull), newest
    last; `requests`: what was sent.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Requests)
        self.responses, self.requests, self.dispatches = [], [], []
        self.texts = {"comment": [], "issue": [], "pull": []}
        self.login, self.user_type = "roundhouse", "User"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, kind, body, login=None, user_type="User", **more):
        login = login or self.login or "github-actions[bot]"
        number = 1 + sum(map(len, self.texts.values()))
        item = {"id": number, "number": number, "iid": number, "body": body, "description": body,
                "state": "open", "title": "", "user": {"login": login, "type": user_type},
                "author": {"id": login}, "html_url": f"https://forge.example/{kind}/{number}",
                "web_url": f"https://forge.example/{kind}/{number}", **more}  # fmt: skip
        self.texts[kind].append(item)
        return item

    def answer(self, method, path, query, body):
        """Return the status and the document of one request, of either forge."""
        if path == "/user":
            return (200, {"login": self.login, "id": self.login}) if self.login else (403, {})
        if re.search(r"/(dispatches|pipeline)$", path):
            self.dispatches.append((path, body))
            return 204, None
        for pattern, kind in (
            (r"/\d+/(comments|notes)(/\d+)?$|/issues/comments/\d+$", "comment"),
            (r"/issues(/\d+)?$", "issue"),
            (r"/(pulls|merge_requests)(/\d+)?$", "pull"),
        ):  # fmt: skip
            if re.search(pattern, path):
                return self._of_kind(kind, method, path, query, body)
        return 404, {"message": "Not Found"}

    def _of_kind(self, kind, method, path, query, body):
        number = re.search(r"/(\d+)$", path)
        if method == "GET" and number is None:
            size, page = int(query["per_page"]), int(query["page"])
            there = [item for item in self.texts[kind] if item["state"] == "open"]
            return 200, there[(page - 1) * size : page * size]
        if method == "POST":
            item = self.add(kind, "", user_type=self.user_type)
        else:
            wanted = int(number.group(1))
            item = next(
                (item for item in self.texts[kind] if item["id"] == wanted),
                {"web_url": "https://forge.example/pull/1"},
            )
        if body and body.get("state_event") == "close":
            body = {"state": "closed"}
        item.update(body or {})
        return 201 if method == "POST" else 200, item


class _Requests(BaseHTTPRequestHandler):
    def _answer(self):
        parts = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, parts.path, dict(self.headers)))
        if self.server.responses:
            status, headers, content = self.server.responses.pop(0)
        else:
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            body = json.loads(text) if text else None
            status, document = self.server.answer(self.command, parts.path, query, body)
            headers, content = {}, "" if document is None else json.dumps(document)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    do_GET = do_POST = do_PUT = do_PATCH = _answer

    def log_message(self, *_):
        pass
