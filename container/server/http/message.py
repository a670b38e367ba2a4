"""A request and a response, whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple


class Request(NamedTuple):
    """A request; header names are lower case, `path` has no query and no percent escapes."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes
    query: str = ""


class Response(NamedTuple):
    """An answer; its length and content type are not among `headers`."""

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


Answering = Callable[[Request], Awaitable[Response]]
"""Answers a whole request; cancelled when the client leaves.

Never raises RequestFault: a fault is a response too.
"""
