"""The forge's HTTP server: GitHub's command line, git, OpenID Connect and artifacts."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.rehearsal.forge.forge import Forge
from tests.rehearsal.forge.gh import Caller, run_gh
from tests.rehearsal.forge.git import serve_http
from tests.rehearsal.forge.records import (
    NOT_FOUND,
    WRITE,
    Document,
    RefusedError,
    Repository,
    Run,
    Token,
)

API = "/api/v3"
APPROVAL_SECONDS = 600.0
POLL_SECONDS = 0.02
"""How long the server may need to end."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer; its content is JSON unless the headers say otherwise."""

    content: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def running_forge(folder: Path) -> Iterator[Forge]:
    """A forge that answers on 127.0.0.1; nothing of it is left but its folder."""
    forge = Forge(folder)
    bound = type("Bound", (Handler,), {"forge": forge})
    with ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
        server.daemon_threads = True
        forge.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield forge
        finally:
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    forge: Forge
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        parts, body = urlsplit(self.path), self._read_body()
        try:
            response = self._response(parts.path, parts.query, body)
        except RefusedError as error:
            content = json.dumps({"message": error.message}).encode()
            response = Response(status=error.status, content=content)
        self._send(response)

    do_GET = do_POST = _answer

    def _response(self, path: str, query: str, body: bytes) -> Response:
        if path == "/oidc/token":
            return self._identity_token(dict(parse_qsl(query))["audience"])
        if path.startswith("/artifacts/"):
            return self._artifact(*path.split("/")[2:], body)
        if path == f"{API}/gh":
            return self._gh(json.loads(body))
        return self._git(path, query, body)

    def _gh(self, call: Document) -> Response:
        caller = Caller(
            forge=self.forge,
            token=self._token(),
            repository=self._repository(call["repository"]),
            folder=Path(call["folder"]),
        )
        with self.forge.lock:
            return Response(content=json.dumps(run_gh(caller, call["words"])).encode())

    def _git(self, path: str, query: str, body: bytes) -> Response:
        full_name, _, service = path.removeprefix("/").partition(".git/")
        repository, token = self._repository(full_name), self._token()
        writes = "git-receive-pack" in (service, *dict(parse_qsl(query)).values())
        if not token.may(repository, "contents", WRITE if writes else "read"):
            raise RefusedError(403, f"Permission to {full_name} denied")
        with self.forge.lock:
            before = repository.git.branches()
            status, fields, content = serve_http(
                self.forge.folder,
                method=self.command,
                path=path,
                query=query,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
            )
            for branch, commit in repository.git.branches().items() if writes else ():
                if before.get(branch) != commit:
                    self.forge.pushed(token, repository, branch, before.get(branch), commit)
        return Response(status=status, headers=dict(fields), content=content)

    def _identity_token(self, audience: str) -> Response:
        """Return the present job's token, once its environment is approved."""
        run = self._run()
        with self.forge.lock:
            self.forge.lock.wait_for(lambda: run.waits_for is None, APPROVAL_SECONDS)
            document = {"count": 1, "value": run.identity_token(audience)}
        return Response(content=json.dumps(document).encode())

    def _artifact(self, number: str, name: str, body: bytes) -> Response:
        """Keep an artifact of the job's own run, or return one of any run that its token reads."""
        token, run = self._token(), self.forge.runs[int(number)]
        is_reader = self.command == "GET" and token.may(run.repository, "actions", "read")
        if run is not token.run and not is_reader:
            raise RefusedError(403, "Resource not accessible by integration")
        with self.forge.lock:
            if self.command == "POST":
                run.artifacts[name] = body
            if name not in run.artifacts:
                raise NOT_FOUND
            return Response(content=run.artifacts[name])

    def _repository(self, full_name: str) -> Repository:
        repository = self.forge.repositories.get(full_name)
        if repository is None:
            raise NOT_FOUND
        return repository

    def _run(self) -> Run:
        run = self._token().run
        if run is None:
            raise RefusedError(403, "only a job may ask for this")
        return run

    def _token(self) -> Token:
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                value = base64.b64decode(value).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                value = ""
        token = self.forge.tokens.get(value)
        if token is None:
            raise RefusedError(401, "Bad credentials")
        return token

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        headers = {"Content-Type": "application/json; charset=utf-8", **response.headers}
        if response.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="forge"'
        headers["Content-Length"] = str(len(response.content))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.content)
