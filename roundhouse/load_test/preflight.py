"""One request before the load: whatever keeps every request from being answered is said at once."""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

from roundhouse.errors import NotReadyError, RoundhouseError, WrongAnswerError
from roundhouse.load_test.asked import Asked
from roundhouse.load_test.requests.signing import signer
from roundhouse.load_test.wording import status_words

KEPT_BYTES = 4096


def require_answer(asked: Asked) -> None:
    """Sends the first body and reads the answer's arrays.

    Raises NotReadyError when nothing answers or a server is not ready, RoundhouseError when the request
    is refused, WrongAnswerError when
    the answer is not KServe v2's.
    """
    from container.wire import AnswerFault, arrays_of

    status, content_type, body = _answer(asked)
    if status != 200:
        said = f"{asked.subject}: refused the first request with {status_words(status, body[:KEPT_BYTES]).rstrip('.')}"
        if asked.destination.region is not None:
            raise RoundhouseError(
                f"{said}; `roundhouse status` shows what is deployed, `roundhouse deploy` deploys it."
            )
        if status >= 500:
            raise NotReadyError(f"{said}; is the server ready (/ping)?")
        raise RoundhouseError(
            f"{said}; give the path, --model, --input and --binary that this server takes."
        )
    try:
        arrays_of(body, content_type)
    except AnswerFault as fault:
        raise WrongAnswerError(f"{asked.subject}: {fault}") from fault


def _answer(asked: Asked) -> tuple[int, str, bytes]:
    body, signed = asked.bodies[0], signer(asked.destination)
    parts = urlsplit(asked.destination.url)
    headers = {"Content-Type": body.content_type, **dict(asked.destination.headers)}
    headers |= {} if signed is None else dict(signed(body))
    connection = _connection(asked)
    try:
        connection.request(
            "POST", parts.path + (f"?{parts.query}" if parts.query else ""), body.data, headers
        )
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()
    except (OSError, http.client.HTTPException) as fault:
        said = (
            fault.strerror
            if isinstance(fault, OSError) and fault.strerror
            else str(fault) or repr(fault)
        )
        raise NotReadyError(
            f"{parts.scheme}://{parts.netloc}: does not answer ({said}); is the server, or the cloud, up?"
        ) from fault
    finally:
        connection.close()


def _connection(asked: Asked) -> http.client.HTTPConnection:
    host, port = asked.destination.address
    if asked.destination.tls:
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            host, port, timeout=asked.timeout_seconds, context=context
        )
    return http.client.HTTPConnection(host, port, timeout=asked.timeout_seconds)
