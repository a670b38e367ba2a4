"""The forge's HTTP server: the REST API, git, the OpenID Connect issuer and artifacts."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.rehearsal.forge import issues, pull_requests, workflow_runs
from tests.rehearsal.forge.git import BareRepository, serve_http
from tests.rehearsal.forge.identity import TokenRefusedError, job_claims, unsigned_token
from tests.rehearsal.forge.records import ACTIONS, WRITE, Repository, Run, Store, Token, User
from tests.rehearsal.forge.routes import RefusedError, Request, Response, not_found

API = "/api/v3"
ROUTES = (*issues.ROUTES, *pull_requests.ROUTES, *workflow_runs.ROUTES)
APPROVAL_SECONDS = 600.0
POLL_SECONDS = 0.02
"""How long the server may need to end."""
FIRST_USER, FIRST_REPOSITORY = 123456, 456789


class Forge:
    """A forge that keeps its repositories in `folder`, and everything else in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"of": self}))
        self.server.daemon_threads = True
        self.thread = threading.Thread(
            target=self.server.serve_forever, args=(POLL_SECONDS,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def api_url(self) -> str:
        return self.url + API

    def start(self) -> None:
        """Begin to answer."""
        self.thread.start()

    def stop(self) -> None:
        """End the server; nothing of it is left but its folder."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def add_user(self, login: str) -> str:
        """Add a person and return a token of theirs."""
        user = User(login=login, id=FIRST_USER + len(self.store.users))
        self.store.users[login] = user
        return self._add_token(Token(user=user))

    def add_repository(self, owner: str, name: str, parent: str | None = None) -> Repository:
        """Add an empty repository, or a fork with the branches of its parent."""
        store, git = self.store, BareRepository.create(self.folder / owner / f"{name}.git")
        repository = Repository(
            owner=store.users[owner],
            name=name,
            id=FIRST_REPOSITORY + len(store.repositories),
            git=git,
            parent=None if parent is None else store.repositories[parent],
        )
        if repository.parent is not None:
            git.fetch(repository.parent.git, "refs/heads/*", "refs/heads/*")
        store.repositories[repository.full_name] = repository
        return repository

    def add_run(self, **fields: Any) -> tuple[Run, str]:
        """Add a workflow run and return it with its token, which acts as GitHub's own bot."""
        run = Run(id=next(self.store.ids), **fields)
        self.store.runs[run.id] = run
        return run, self._add_token(Token(user=ACTIONS, run=run))

    def _add_token(self, token: Token) -> str:
        value = f"ghs_{secrets.token_hex(16)}"
        self.store.tokens[value] = token
        return value


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    of: Forge
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self._read_body()
        try:
            response = self._response(parts.path, parts.query, body)
        except RefusedError as error:
            document = {"message": error.message, "documentation_url": "https://docs.github.com"}
            response = Response(status=error.status, document=document)
        self._send(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def _response(self, path: str, query: str, body: bytes) -> Response:
        values = dict(parse_qsl(query, keep_blank_values=True))
        if path == "/oidc/token":
            return self._identity_token(values.get("audience") or "sts.amazonaws.com")
        if path.startswith("/artifacts/"):
            return self._artifact(path.removeprefix("/artifacts/"), body)
        if path.startswith(f"{API}/"):
            return self._api(path.removeprefix(API), values, body)
        return self._git(path, query, body)

    def _api(self, path: str, query: dict[str, str], body: bytes) -> Response:
        token = self._token()
        for route in ROUTES:
            parts = route.match(self.command, path)
            if parts is None:
                continue
            document = _document(body)
            url = f"{self.of.api_url}{path}"
            with self.of.store.lock:
                return route.respond(
                    Request(
                        store=self.of.store,
                        token=token,
                        url=url,
                        path=parts,
                        query=query,
                        body=document or {},
                    )
                )
        raise not_found()

    def _git(self, path: str, query: str, body: bytes) -> Response:
        owner, _, rest = path.removeprefix("/").partition("/")
        name, _, service = rest.partition(".git/")
        repository = self.of.store.repositories.get(f"{owner}/{name}")
        token = self._token()
        writes = "git-receive-pack" in (service, *dict(parse_qsl(query)).values())
        if repository is None:
            raise not_found()
        if not token.may(repository, "contents", WRITE if writes else "read"):
            raise RefusedError(403, f"Permission to {repository.full_name} denied")
        with self.of.store.lock:
            before = repository.git.branches()
            status, fields, content = serve_http(
                self.of.folder,
                method=self.command,
                path=path,
                query=query,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
            )
            request = Request(
                store=self.of.store,
                token=token,
                url=self.of.api_url,
                path={"owner": owner, "repo": name},
            )
            for branch, commit in repository.git.branches().items() if writes else ():
                if before.get(branch) != commit:
                    pull_requests.push(request, repository, branch, before.get(branch), commit)
        return Response(status=status, headers=dict(fields), content=content)

    def _identity_token(self, audience: str) -> Response:
        """Return the present job's token, once its environment is approved."""
        run, lock = self._run(), self.of.store.lock
        with lock:
            job = run.job
            environment = (
                None if job is None else run.repository.environments.get(job.environment or "")
            )
            if environment is not None and environment.reviewers:
                lock.wait_for(lambda: environment.name in run.approvals, APPROVAL_SECONDS)
            try:
                claims = job_claims(run, audience)
            except TokenRefusedError as error:
                raise RefusedError(403, f"No token: {error}") from error
        return Response(document={"count": 1, "value": unsigned_token(claims)})

    def _artifact(self, name: str, body: bytes) -> Response:
        """Keep an artifact of the job's own run, or return it."""
        run, store = self._run(), self.of.store
        if self.command == "GET":
            if name not in run.artifacts:
                raise not_found()
            return Response(content=run.artifacts[name])
        with store.lock:
            if name in run.artifacts:
                raise RefusedError(409, f"an artifact with the name {name} exists on the run")
            run.artifacts[name] = body
            store.artifacts[next(store.ids)] = run, name
        return Response(status=201, document={"name": name})

    def _run(self) -> Run:
        token = self._token()
        if token.run is None:
            raise RefusedError(403, "only a job may ask for this")
        return token.run

    def _token(self) -> Token:
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                value = base64.b64decode(value).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                value = ""
        token = self.of.store.tokens.get(value)
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


def _document(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError as error:
        raise RefusedError(400, "Problems parsing JSON") from error
