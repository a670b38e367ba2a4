"""A repository of the Hugging Face hub: its commit, its files, and the small ones' content."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import IO, Any

from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from roundhouse.inspection.source_files import SourceFiles

HUB = "https://huggingface.co"
SECONDS = 30
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?", re.ASCII)
PARTIAL = 206
"""The status of an answer that is the part that was asked for."""
PRIVATE = (401, 403)
"""What the hub answers for a private or gated repository, and for one that is not there."""


def hub_files(pin: str, path: str | None, variables: Mapping[str, str]) -> SourceFiles:
    """Return the checkpoint of a repository at a commit. Raises RoundhouseError.

    `pin` is owner/name, with @commit or the default branch's newest one. HF_TOKEN and HF_ENDPOINT
    of `variables` count as they do for huggingface_hub.
    """
    if REPOSITORY.fullmatch(pin) is None:
        raise UsageError(
            f"--huggingface {pin}: is no repository; write owner/name, or owner/name@<commit>."
        )
    repository, _, revision = pin.partition("@")
    base = variables.get("HF_ENDPOINT", HUB).rstrip("/")
    token = variables.get("HF_TOKEN")
    revision = urllib.parse.quote(revision or "main", safe="")
    answer = _get(f"{base}/api/models/{repository}/revision/{revision}", pin, token)
    try:
        document = json.loads(answer or b"{}")
        commit, listed = document["sha"], [item["rfilename"] for item in document["siblings"]]
    except (ValueError, KeyError, TypeError) as error:
        raise NotReadyError(f"--huggingface {pin}: {base} gave no answer of the hub.") from error
    folder = "" if path is None else f"{PurePosixPath(path).as_posix()}/"
    names = [name.removeprefix(folder) for name in listed if name.startswith(folder)]

    @cache
    def read(name: str) -> bytes | None:
        if name not in names:
            return None
        file = urllib.parse.quote(f"{folder}{name}")
        return _get(f"{base}/{repository}/resolve/{commit}/{file}", pin, token)

    def read_range(name: str, first: int, count: int) -> bytes:
        file = urllib.parse.quote(f"{folder}{name}")
        part = f"bytes={first}-{first + count - 1}"
        return _get(f"{base}/{repository}/resolve/{commit}/{file}", pin, token, part)

    pins = {"huggingface": f"{repository}@{commit}"}
    if path is not None:
        pins["path"] = PurePosixPath(path).as_posix()
    return SourceFiles(pins=pins, names=frozenset(names), read=read, read_range=read_range)


class _OwnHost(urllib.request.HTTPRedirectHandler):
    """Follows redirections; the token goes to no other host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and request.host != req.host:
            request.remove_header("Authorization")
        return request


def _get(url: str, pin: str, token: str | None, part: str | None = None) -> bytes:
    """Return an answer's content, or of it the `part` that an HTTP Range names."""
    request = urllib.request.Request(url)
    if part is not None:
        request.add_header("Range", part)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.build_opener(_OwnHost).open(request, timeout=SECONDS) as answer:
            if part is not None and answer.status != PARTIAL:
                raise NotReadyError(f"--huggingface {pin}: the hub gives no part of a file.")
            data: bytes = answer.read()
            return data
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404 or error.code in PRIVATE:
            raise RoundhouseError(_refusal(pin, error.code, has_token=bool(token))) from error
        raise NotReadyError(
            f"--huggingface {pin}: the hub answers {error.code}; try again later."
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NotReadyError(
            f"--huggingface {pin}: the hub cannot be reached ({reason}); check the network, or "
            "HF_ENDPOINT."
        ) from error


def _refusal(pin: str, code: int, *, has_token: bool) -> str:
    if code == 404:
        return (
            f"--huggingface {pin}: there is no such repository, commit or file; correct it, or "
            "set HF_TOKEN where it is private."
        )
    if has_token:
        return (
            f"--huggingface {pin}: the token in HF_TOKEN may not read it; accept the model's "
            "terms on its page, or give a token that may."
        )
    return (
        f"--huggingface {pin}: is gated, private or not there; set HF_TOKEN to a token that may "
        "read it, or correct the name."
    )
