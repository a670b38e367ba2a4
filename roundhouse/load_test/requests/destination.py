"""Where requests go, and their bytes: HTTP/1.1, signed where the endpoint is SageMaker's."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from roundhouse.errors import RoundhouseError

PORTS = {"http": 80, "https": 443}
SIGNATURE_SECONDS = 120.0
"""How long a signature is used again for the same body; AWS takes it for five minutes."""

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Body:
    """One request's body; `rows` of texts or tensors."""

    data: bytes
    content_type: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A URL and the headers that every request has; `region` is that of SageMaker, None where
    nothing is signed.
    """

    url: str
    headers: Headers = ()
    region: str | None = None

    @property
    def tls(self) -> bool:
        """Whether it is https."""
        return urlsplit(self.url).scheme == "https"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return str(parts.hostname), parts.port if parts.port is not None else PORTS[parts.scheme]


def server_url(url: str) -> str:
    """A bare server's URL, with the path that SageMaker uses when it has none.

    Raises RoundhouseError.
    """
    parts = urlsplit(url)
    try:
        known = (
            parts.scheme in PORTS
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        known = False
    if not known or parts.username is not None or parts.fragment:
        raise RoundhouseError(
            f"--url {url}: is no server's address; write http://HOST:PORT/invocations."
        )
    return parts._replace(path="/invocations").geturl() if parts.path in ("", "/") else url


Signed = Callable[[Body], Headers]
"""The headers that sign one body now."""


class Requests:
    """The bytes of each request, in an order that the seed sets; a signature is made when its
    body's turn comes.
    """

    def __init__(
        self,
        destination: Destination,
        bodies: Sequence[Body],
        seed: int,
        signed: Signed | None = None,
    ) -> None:
        self._destination = destination
        self._bodies = list(bodies)
        self._signed = signed
        random.Random(seed).shuffle(self._bodies)
        self._made: list[tuple[float, bytes]] = [(0.0, b"")] * len(self._bodies)
        self._next = 0

    def next(self) -> bytes:
        """The next request, whole."""
        place = self._next
        self._next = (place + 1) % len(self._bodies)
        made_until, data = self._made[place]
        if data and (self._signed is None or time.monotonic() < made_until):
            return data
        data = self._request(self._bodies[place])
        self._made[place] = (time.monotonic() + SIGNATURE_SECONDS, data)
        return data

    def _request(self, body: Body) -> bytes:
        parts = urlsplit(self._destination.url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = [
            ("Host", parts.netloc),
            ("Content-Type", body.content_type),
            ("Content-Length", str(len(body.data))),
        ]
        headers += [
            *self._destination.headers,
            *(() if self._signed is None else self._signed(body)),
        ]
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body.data
