"""Where requests go: a server's URL, or SageMaker Runtime with SigV4 signatures by botocore."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from container.wire import error_sentence
from roundhouse.errors import RoundhouseError
from roundhouse.measure.inputs import Body

SERVICE = "sagemaker"
MAX_LETTERS = 160
"""Of a refusal's message."""
SIGNATURE_SECONDS = 120.0
"""How long a signature is used again for the same body; AWS accepts it for five minutes."""
SIGNATURE_HEADERS = ("X-Amz-Date", "X-Amz-Security-Token", "Authorization", "X-Amz-Content-SHA256")
Sign = Callable[[Body], Mapping[str, str]]
"""Returns the headers that sign one body now."""


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A URL with the headers of every request; `region` is set where requests are signed.

    `is_framed`: answers are AWS's event stream.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    region: str | None = None
    is_framed: bool = False


def server_url(url: str) -> str:
    """Return a server's URL, with SageMaker's path where it has none. Raises RoundhouseError."""
    parts = urlsplit(url)
    try:
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_valid = is_http and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or parts.username is not None or parts.fragment:
        raise RoundhouseError(
            f"--url {url}: is no server's address; write http://HOST:PORT/invocations."
        )
    return parts._replace(path="/invocations").geturl() if parts.path in ("", "/") else url


def signer(destination: Destination) -> Sign | None:
    """Return what signs requests to a destination; None where nothing is signed.

    Raises AwsError without credentials, and so do the signatures when they can't be renewed.
    """
    region = destination.region
    if region is None:
        return None
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    from roundhouse.aws.clients import calling, frozen_credentials

    purpose = "Signing the requests"
    credentials = frozen_credentials(purpose)

    def sign(body: Body) -> Mapping[str, str]:
        headers = {"Content-Type": body.content_type, **destination.headers}
        request: Any = AWSRequest("POST", destination.url, headers=headers, data=body.data)
        # Frozen anew for every signature: credentials of a role are renewed while the load runs.
        with calling(purpose):
            SigV4Auth(credentials(), SERVICE, region).add_auth(request)
        signed = request.headers
        return {name: signed[name] for name in SIGNATURE_HEADERS if name in signed}

    return sign


class RequestSource(Protocol):
    """Gives requests one after the other."""

    def next(self) -> tuple[bytes, dict[str, str]]:
        """Return the next request's body and headers."""


class Requests:
    """Bodies in an order set by the seed, each with its headers, signed when its turn comes."""

    def __init__(
        self, destination: Destination, bodies: Sequence[Body], seed: int, sign: Sign | None
    ) -> None:
        self._headers, self._sign = destination.headers, sign
        self._bodies = list(bodies)
        random.Random(seed).shuffle(self._bodies)
        self._cached: list[tuple[float, dict[str, str]]] = [(0.0, {})] * len(self._bodies)
        self._position = 0

    def next(self) -> tuple[bytes, dict[str, str]]:
        """Return the next request's body and headers."""
        position, now = self._position, time.monotonic()
        self._position = (position + 1) % len(self._bodies)
        body, (expires, headers) = self._bodies[position], self._cached[position]
        if not headers or (self._sign is not None and now >= expires):
            signature = {} if self._sign is None else self._sign(body)
            headers = {"Content-Type": body.content_type, **self._headers, **signature}
            self._cached[position] = (now + SIGNATURE_SECONDS, headers)
        return body.data, headers


def refusal(status: int, body: bytes) -> str:
    """Return a refusal's status and message; behind SageMaker, those of the container."""
    message = error_sentence(body)
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and "error" not in document:
        if original := document.get("OriginalMessage"):
            status = document.get("OriginalStatusCode", status)
            message = error_sentence(str(original))
        else:
            message = str(document.get("Message") or document.get("message") or message)
    return f"HTTP {status}" + (f": {message[:MAX_LETTERS]}" if message else "")
