"""Failures of AWS or its client, as the end of a sentence: what is wrong, the way out."""

from __future__ import annotations

from typing import Any

LOG_IN = "set AWS_PROFILE, or log in (`aws sso login`, `aws configure`), then try again"
LOG_IN_AGAIN = "log in again (`aws sso login`, or new keys), then try again"
CORRECT_PROFILE = "correct the profile in ~/.aws/config, or set AWS_PROFILE to another one"
SETTINGS = "correct the AWS_… variables of this shell, or ~/.aws/config"
REACH = (
    "is this machine online, the cloud up (`roundhouse status`), the region and "
    "AWS_ENDPOINT_URL right?"
)
NOT_AWS = (
    "is there a proxy between, or is AWS_ENDPOINT_URL wrong, so that something else "
    "than AWS answers?"
)
AGAIN = "try again later"
PERMIT = "use credentials of the environment's account that may do this"
OTHER_ACCOUNT = "use the keys of the environment's own account"

_BY_TYPE = {
    "NoCredentialsError": LOG_IN,
    "PartialCredentialsError": "give both halves of the key, or set AWS_PROFILE",
    "CredentialRetrievalError": LOG_IN_AGAIN,
    "TokenRetrievalError": LOG_IN_AGAIN,
    "UnauthorizedSSOTokenError": LOG_IN_AGAIN,
    "SSOTokenLoadError": LOG_IN_AGAIN,
    "SSOError": LOG_IN_AGAIN,
    "RefreshWithMFAUnsupportedError": LOG_IN_AGAIN,
    "ProfileNotFound": "set AWS_PROFILE to one that `aws configure list-profiles` shows, or "
    "unset it",
    "ConfigParseError": "correct the file, or point AWS_CONFIG_FILE and "
    "AWS_SHARED_CREDENTIALS_FILE at others",
    "ConfigNotFound": "point AWS_CONFIG_FILE at a file that is there, or unset it",
    "InvalidConfigError": CORRECT_PROFILE,
    "InfiniteLoopConfigError": CORRECT_PROFILE,
    "UnknownCredentialError": CORRECT_PROFILE,
    "EndpointConnectionError": REACH,
    "ConnectTimeoutError": REACH,
    "ConnectionClosedError": REACH,
    "HTTPClientError": REACH,
    "ReadTimeoutError": AGAIN,
    "ResponseStreamingError": AGAIN,
    "IncompleteReadError": AGAIN,
    "ProxyConnectionError": "correct HTTPS_PROXY and HTTP_PROXY, or list the address in NO_PROXY",
    "InvalidProxiesConfigError": "correct HTTPS_PROXY and HTTP_PROXY",
    "SSLError": "behind a proxy of your own, point AWS_CA_BUNDLE at its certificates",
    "ResponseParserError": NOT_AWS,
}
_CODES_BY_WAY_OUT = {
    LOG_IN_AGAIN: "ExpiredToken ExpiredTokenException RequestExpired TokenRefreshRequired 400",
    "set this machine's clock": "RequestTimeTooSkewed RequestInTheFuture",
    OTHER_ACCOUNT: "InvalidClientTokenId UnrecognizedClientException InvalidAccessKeyId "
    "SignatureDoesNotMatch InvalidSignatureException InvalidToken AuthFailure "
    "MissingAuthenticationToken",
    PERMIT: "AccessDenied AccessDeniedException UnauthorizedOperation 403",
    AGAIN: "Throttling ThrottlingException TooManyRequestsException SlowDown RequestLimitExceeded "
    "ServiceUnavailable InternalError InternalFailure InternalServerError 500 503",
}
"""To a HEAD, S3 answers 400 without words, whatever is wrong with the credentials."""
_BY_CODE = {code: way_out for way_out, codes in _CODES_BY_WAY_OUT.items() for code in codes.split()}
_WORDS = {
    "NoCredentialsError": "no AWS credentials were found",
    "ResponseParserError": "the answer cannot be read",
}
"""In place of botocore's own, where they say little or fill the screen."""


def refusal_message(error: Any) -> tuple[str, str]:
    """The code of AWS's refusal, and what to say of it."""
    answer = error.response.get("Error", {})
    code = str(answer.get("Code"))
    message = f"AWS answered {code}: {_one_line(answer.get('Message'))}"
    return code, _with(message, _BY_CODE.get(code))


def is_temporary_refusal(error: Any) -> bool:
    """Return whether AWS throttled a call, or met a fault of its own."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or _BY_CODE.get(str(error.response.get("Error", {}).get("Code"))) == AGAIN


def failure_message(error: Exception) -> tuple[str, str]:
    """The kind of a failure of botocore's own, its nearest known one, and what to say of it."""
    known = _known_kind(error)
    message = _WORDS.get(known, _one_line(error))
    return type(error).__name__, _with(message, _BY_TYPE.get(known, SETTINGS))


def is_temporary_failure(error: Exception) -> bool:
    """Return whether a call did not reach AWS, or something else answered."""
    return _BY_TYPE.get(_known_kind(error)) in (REACH, AGAIN, NOT_AWS)


def _known_kind(error: Exception) -> str:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return next((kind for kind in kinds if kind in _BY_TYPE), kinds[0])


def unreadable_message(error: KeyError) -> tuple[str, str]:
    """The same of an answer that lacks what AWS always says."""
    return "NotAws", _with(f"the answer has no {_one_line(error)}", NOT_AWS)


def client_message(error: Exception) -> tuple[str, str]:
    """The same of whatever else comes up while a client is made.

    Of settings and credentials that nobody checked before.
    """
    kind, text = type(error).__name__, _one_line(error)
    if text.startswith("Invalid endpoint"):
        message = f"{text}, which is no address"
        return "InvalidEndpoint", _with(
            message, "write AWS_ENDPOINT_URL, or endpoint_url in ~/.aws/config, as https://HOST"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return kind, _with(
            f"the credentials cannot be had: {error.filename}: {error.strerror}", SETTINGS
        )
    return kind, _with(f"the client's settings or credentials cannot be used: {text}", SETTINGS)


def _with(message: str, way_out: str | None) -> str:
    if way_out is None:
        return f"{message}."
    return f"{message}; {way_out}{'' if way_out.endswith('?') else '.'}"


def _one_line(message: object) -> str:
    text = " ".join(str(message).split()).rstrip(".")
    return text if len(text) <= 300 else f"{text[:297]}..."
