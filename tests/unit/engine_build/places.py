"""Places that sources come from, on this machine: a hub, Secrets Manager, S3 in memory."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from botocore.exceptions import ClientError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Answer = tuple[int, str, bytes]
"""Status, content type, body."""
CLOSED = "X-Error-Code"
"""Header in which the hub says why it answers 401."""


@contextmanager
def serve(
    answer: Callable[[BaseHTTPRequestHandler], Answer],
    headers_of: Callable[[int], Iterable[tuple[str, str]]] = lambda status: (),
) -> Iterator[str]:
    """A server of this machine; gives its address.

    `headers_of`: further headers of a status.
    """

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            status, kind, body = answer(self)
            self.send_response(status)
            for name, value in headers_of(status):
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = answer

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def hub(
    files: Mapping[str, bytes], token: str | None = None, *, gated: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """A hub with one repository, owner/name, at one commit, and its requests.

    `token`: without it nothing is read or, of a `gated` repository, no file.
    """
    requests: list[str] = []
    information = {
        "id": "owner/name",
        "sha": COMMIT,
        "siblings": [{"rfilename": name} for name in files],
    }
    tree = [
        {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
        for name, data in files.items()
    ]
    bodies = {f"/owner/name/resolve/{COMMIT}/{name}": data for name, data in files.items()} | {
        f"/api/models/owner/name/revision/{COMMIT}": json.dumps(information).encode(),
        f"/api/models/owner/name/tree/{COMMIT}": json.dumps(tree).encode(),
    }

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        requests.append(request.path)
        is_listing = request.path.startswith("/api/")
        may_read = token is None or request.headers["Authorization"] == f"Bearer {token}"
        if not may_read and not (gated and is_listing):
            return 401, "application/json", b"{}"
        body = bodies.get(request.path.split("?")[0])
        kind = "application/json" if is_listing else "application/octet-stream"
        part = request.headers["Range"]
        if body is not None and part is not None:
            first, last = map(int, part.removeprefix("bytes=").split("-"))
            return 206, kind, body[first : last + 1]
        return (404, kind, b"{}") if body is None else (200, kind, body)

    reason = (CLOSED, "GatedRepo" if gated else "RepoNotFound")
    with serve(answer, lambda status: (reason,) if status == 401 else ()) as address:
        yield address, requests


@contextmanager
def secrets_manager(secrets: Mapping[str, str]) -> Iterator[str]:
    """Secrets Manager with these texts by ARN; others are not there."""

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        kind, text = "application/x-amz-json-1.1", secrets.get(body["SecretId"])
        if text is None:
            refusal = {
                "__type": "ResourceNotFoundException",
                "message": "Secrets Manager can't find the specified secret.",
            }
            return 400, kind, json.dumps(refusal).encode()
        found = {"ARN": body["SecretId"], "Name": "secret", "SecretString": text}
        return 200, kind, json.dumps(found).encode()

    with serve(answer) as address:
        yield address


def client_error(code, message=""):
    return ClientError({"Error": {"Code": code, "Message": message}}, "Call")


class Bucket:
    """The calls of S3 that a store makes, in memory.

    `refusal` is every call's answer; the first `contested` writes meet another build's.
    """

    def __init__(self, refusal: Exception | None = None, contested: int = 0) -> None:
        self.objects: dict[str, bytes] = {}
        self.refusal = refusal
        self.contested = contested

    def put_object(self, *, Bucket, Key, Body, ChecksumSHA256, IfNoneMatch=None):
        self._refuse()
        if self.contested > 0:
            self.contested -= 1
            if self.contested == 0:
                self.objects[Key] = b"the other's"
            raise client_error("ConditionalRequestConflict", "conflict")
        if IfNoneMatch == "*" and Key in self.objects:
            raise client_error("PreconditionFailed")
        self.objects[Key] = Body.read()
        return {}

    def head_object(self, *, Bucket, Key):
        return {"ContentLength": len(self._object(Key, "404"))}

    def get_object(self, *, Bucket, Key):
        return {"Body": io.BytesIO(self._object(Key, "NoSuchKey"))}

    def list_objects_v2(self, *, Bucket, Prefix, ContinuationToken=""):
        self._refuse()
        keys = [key for key in sorted(self.objects) if key.startswith(Prefix)]
        page = [{"Key": key} for key in keys if key > ContinuationToken][:2]
        is_truncated = bool(page) and page[-1]["Key"] != keys[-1]
        following = {"NextContinuationToken": page[-1]["Key"]} if is_truncated else {}
        return {"Contents": page, "IsTruncated": is_truncated, **following}

    def _object(self, key, code):
        self._refuse()
        if key not in self.objects:
            raise client_error(code)
        return self.objects[key]

    def _refuse(self):
        if self.refusal is not None:
            raise self.refusal
