"""Requests to a forge's REST API: pages, bounded retries, and every refusal as one sentence."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from roundhouse.errors import NotReadyError, RoundhouseError

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 4
LONGEST_WAIT_SECONDS = 60.0
PAGE_ITEMS = 100
MOST_PAGES = 200
MOST_RESPONSE_BYTES = 64 * 2**20
SHOWN_CHARACTERS = 300
TOO_MANY_REQUESTS = 429
REPEATABLE = frozenset({"GET", "PUT", "PATCH"})
"""Methods that may be sent twice: the second request changes nothing more."""


class ForgeRefusedError(RoundhouseError):
    """The forge knows no such thing, or refuses what was asked of it (exit code 1)."""


class ForgeNotReadyError(NotReadyError):
    """The forge did not answer, or does not allow this token (exit code 5).

    `status`: of the HTTP response; None without one.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows nothing: urllib would send the token to the host that a redirect names."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class RestApi:
    """One forge's API at `url`; `headers` hold the token, `token_name` the variable it came from.

    `rights` says what the token must be allowed.
    """

    url: str
    headers: Mapping[str, str]
    token_name: str
    rights: str
    sleep: Callable[[float], None] = time.sleep
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise NotReadyError(
                f"{self.url!r} is no address of a forge; it must begin with https://."
            )

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send one request and return its JSON document, None where the response is empty.

        A busy forge (429) is asked again, a failing one (5xx, or no response) too where the method
        may be sent twice. Raises ForgeRefusedError, ForgeNotReadyError.
        """
        for attempt in range(1, ATTEMPTS):
            try:
                return self._send_once(method, path, body)
            except urllib.error.HTTPError as error:
                if not _is_worth_repeating(method, error.code):
                    raise self._refusal(method, path, error) from error
                self.sleep(_wait_seconds(error.headers.get("Retry-After"), attempt))
            except (OSError, http.client.HTTPException) as error:
                if method not in REPEATABLE:
                    raise self._silence(method, path, error) from error
                self.sleep(_wait_seconds(None, attempt))
        try:
            return self._send_once(method, path, body)
        except urllib.error.HTTPError as error:
            raise self._refusal(method, path, error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._silence(method, path, error) from error

    def pages(self, path: str, **query: str) -> Iterator[Any]:
        """Yield the items of a list, page by page. Raises as `send` does."""
        for page in range(1, MOST_PAGES + 1):
            words = urlencode({**query, "per_page": PAGE_ITEMS, "page": page})
            items = self.send("GET", f"{path}?{words}")
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise ForgeNotReadyError(f"{self.url}{path}: the forge's response is no list.")
            yield from items
            if len(items) < PAGE_ITEMS:
                return

    def _send_once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "User-Agent": "roundhouse"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}{path}", data=data, headers=headers, method=method
        )
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(request, timeout=self.timeout_seconds) as response:
            text = response.read(MOST_RESPONSE_BYTES)
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise ForgeNotReadyError(
                f"{method} {self.url}{path}: the response is no JSON; is it a forge's API?"
            ) from error

    def _refusal(
        self, method: str, path: str, error: urllib.error.HTTPError
    ) -> RoundhouseError | NotReadyError:
        """Return the sentence for a response that is an error."""
        what = f"{method} {self.url.rstrip('/')}{path}: {error.code}"
        reason = _message(error)
        if error.code == 401:
            way_out = f"the forge does not accept {self.token_name}; give it a token that is valid"
        elif error.code == 403:
            way_out = f"{reason}; {self.token_name} must be allowed {self.rights}"
        elif error.code == 404:
            return ForgeRefusedError(
                f"{what}: the forge has no such thing, or {self.token_name} may not read it; check "
                "the number and the repository."
            )
        elif 300 <= error.code < 400:
            way_out = "the repository was moved or renamed; give its present name"
        elif error.code == TOO_MANY_REQUESTS or error.code >= 500:
            way_out = f"{reason}; try again later"
        else:
            return ForgeRefusedError(f"{what}: the forge refuses this: {reason}.")
        return ForgeNotReadyError(f"{what}: {way_out}.", error.code)

    def _silence(self, method: str, path: str, error: Exception) -> ForgeNotReadyError:
        """Return the sentence for a forge that did not respond."""
        reason = getattr(error, "reason", None) or error
        short = _one_line(str(reason)) or type(reason).__name__
        return ForgeNotReadyError(
            f"{method} {self.url.rstrip('/')}{path}: the forge did not respond ({short}); try "
            "again once it can be reached."
        )


def field(item: Any, name: str) -> Any:
    """Return one field of a JSON object of the forge. Raises ForgeNotReadyError without it."""
    if not isinstance(item, Mapping) or name not in item:
        raise ForgeNotReadyError(
            f"The forge's response has no {name!r}; is the address one of a forge's API?"
        )
    return item[name]


def differs(item: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Return whether the forge has other texts than these fields: what is equal is not sent."""
    return any(item.get(name) != text for name, text in content.items())


def _is_worth_repeating(method: str, status: int) -> bool:
    return status == TOO_MANY_REQUESTS or (status >= 500 and method in REPEATABLE)


def _wait_seconds(retry_after: str | None, attempt: int) -> float:
    """Return how long to wait: what the forge asks for, at most a minute."""
    wanted = float(retry_after) if retry_after and retry_after.isdecimal() else 2.0**attempt
    return min(wanted, LONGEST_WAIT_SECONDS)


def _message(error: urllib.error.HTTPError) -> str:
    """Return what the forge says of a refusal, as one short line."""
    try:
        document = json.loads(error.read(MOST_RESPONSE_BYTES))
    except (ValueError, OSError, http.client.HTTPException):
        return "it does not say why"
    if not isinstance(document, dict):
        return _one_line(str(document))
    found = [document.get(name) for name in ("message", "error", "error_description", "errors")]
    words = [item if isinstance(item, str) else json.dumps(item) for item in found if item]
    return _one_line(", ".join(words)) or "it does not say why"


def _one_line(text: str) -> str:
    plain = re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", text).strip().rstrip(".")
    return plain if len(plain) <= SHOWN_CHARACTERS else f"{plain[: SHOWN_CHARACTERS - 1]}…"
