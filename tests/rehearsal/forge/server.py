"""The forge's HTTP server: the REST API that workflows use, git, OpenID Connect and artifacts."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.rehearsal.forge.forge import Forge, require_length
from tests.rehearsal.forge.git import serve_http
from tests.rehearsal.forge.records import WRITE, Document, RefusedError, Repository, Run, Token

API = "/api/v3"
APPROVAL_SECONDS = 600.0
POLL_SECONDS = 0.02
"""How long the server may need to end."""
NOT_FOUND = RefusedError(404, "Not Found")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request of the REST API; `parts` are those of its path that a route leaves open."""

    forge: Forge
    token: Token
    repository: Repository
    parts: tuple[str, ...]
    query: Mapping[str, str]
    body: Document

    @property
    def issue(self) -> Document:
        issue = self.repository.issues.get(int(self.parts[0]))
        if issue is None:
            raise NOT_FOUND
        return issue


@dataclass(frozen=True, kw_only=True)
class Response:
    """Status, document (None: empty) and headers; `content` in place of a document."""

    status: int = 200
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


def list_issues(call: Call) -> Response:
    state = call.query.get("state", "open")
    items = [item for item in call.repository.issues.values() if state in ("all", item["state"])]
    return Response(document=items[::-1])


def list_pulls(call: Call) -> Response:
    return Response(document=[*call.repository.open_pulls()][::-1])


def create_issue(call: Call) -> Response:
    title, body = call.body["title"], call.body["body"]
    issue = call.forge.add_issue(call.token, call.repository, title, body)
    return Response(status=201, document=issue)


def update_issue(call: Call) -> Response:
    changes = {name: call.body[name] for name in ("title", "body", "state") if name in call.body}
    require_length(changes.get("body", ""))
    call.issue.update(changes)
    return Response(document=call.issue)


def list_comments(call: Call) -> Response:
    return Response(document=call.repository.comments_of(call.issue["number"]))


def create_comment(call: Call) -> Response:
    comment = call.forge.add_comment(call.token, call.repository, call.issue, call.body["body"])
    return Response(status=201, document=comment)


def update_comment(call: Call) -> Response:
    comment = call.repository.comments.get(int(call.parts[0]))
    if comment is None:
        raise NOT_FOUND
    require_length(call.body["body"])
    comment["body"] = call.body["body"]
    return Response(document=comment)


def create_pull(call: Call) -> Response:
    head, title, body = (call.body[name] for name in ("head", "title", "body"))
    pull = call.forge.create_pull(call.token, call.repository, head, title, body)
    return Response(status=201, document=pull)


def dispatch(call: Call) -> Response:
    inputs = call.body.get("inputs", {})
    call.forge.dispatch(call.token, call.repository, call.parts[0], call.body["ref"], inputs)
    return Response(status=204)


def list_artifacts(call: Call) -> Response:
    items = [
        {"id": identifier, "name": name}
        for identifier, (run, name) in call.forge.artifacts.items()
        if run.id == int(call.parts[0]) and call.query.get("name", name) == name
    ]
    return Response(document={"artifacts": items})


def read_artifact(call: Call) -> Response:
    run, name = call.forge.artifacts.get(int(call.parts[0]), (None, ""))
    if run is None or run.repository is not call.repository:
        raise NOT_FOUND
    return Response(content=run.artifacts[name], headers={"Content-Type": "application/zip"})


EITHER, PULLS = ("issues", "pull-requests"), ("pull-requests",)
ROUTES: tuple[tuple[str, str, Callable[[Call], Response], tuple[str, ...]], ...] = (
    ("GET", r"/issues", list_issues, EITHER),
    ("POST", r"/issues", create_issue, ("issues",)),
    ("PATCH", r"/issues/(\d+)", update_issue, EITHER),
    ("GET", r"/issues/(\d+)/comments", list_comments, EITHER),
    ("POST", r"/issues/(\d+)/comments", create_comment, EITHER),
    ("PATCH", r"/issues/comments/(\d+)", update_comment, EITHER),
    ("GET", r"/pulls", list_pulls, PULLS),
    ("POST", r"/pulls", create_pull, PULLS),
    ("PATCH", r"/pulls/(\d+)", update_issue, PULLS),
    ("POST", r"/actions/workflows/([\w.-]+)/dispatches", dispatch, ("actions",)),
    ("GET", r"/actions/runs/(\d+)/artifacts", list_artifacts, ("actions",)),
    ("GET", r"/actions/artifacts/(\d+)/zip", read_artifact, ("actions",)),
)
"""Method, path below the repository, and the permissions of which a run's token needs one."""


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
            response = Response(status=error.status, document={"message": error.message})
        self._send(response)

    do_GET = do_POST = do_PATCH = _answer

    def _response(self, path: str, query: str, body: bytes) -> Response:
        values = dict(parse_qsl(query, keep_blank_values=True))
        if path == "/oidc/token":
            return self._identity_token(values["audience"])
        if path.startswith("/artifacts/"):
            return self._artifact(path.removeprefix("/artifacts/"), body)
        if path.startswith(f"{API}/"):
            return self._api(path.removeprefix(API), values, body)
        return self._git(path, query, body)

    def _api(self, path: str, query: dict[str, str], body: bytes) -> Response:
        token, forge = self._token(), self.forge
        _, _, owner, name, rest = path.split("/", 4)
        repository = self._repository(f"{owner}/{name}")
        for method, pattern, act, permissions in ROUTES:
            found = re.fullmatch(pattern, f"/{rest}")
            if found is None or method != self.command:
                continue
            level = "read" if method == "GET" else WRITE
            if not any(token.may(repository, name, level) for name in permissions):
                raise RefusedError(403, "Resource not accessible by integration")
            call = Call(
                forge=forge,
                token=token,
                repository=repository,
                parts=found.groups(),
                query=query,
                body=json.loads(body) if body else {},
            )
            with forge.lock:
                return act(call)
        raise NOT_FOUND

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
            return Response(document={"count": 1, "value": run.identity_token(audience)})

    def _artifact(self, name: str, body: bytes) -> Response:
        """Keep an artifact of the job's own run, or return it."""
        run, forge = self._run(), self.forge
        if self.command == "GET":
            if name not in run.artifacts:
                raise NOT_FOUND
            return Response(content=run.artifacts[name])
        with forge.lock:
            run.artifacts[name] = body
            forge.artifacts[next(forge.ids)] = run, name
        return Response(status=201, document={"name": name})

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
        content = response.content
        if content is None:
            is_empty = response.document is None
            content = b"" if is_empty else json.dumps(response.document).encode()
        self.send_response(response.status)
        headers = {"Content-Type": "application/json; charset=utf-8", **response.headers}
        if response.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="forge"'
        headers["Content-Length"] = str(len(content))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
