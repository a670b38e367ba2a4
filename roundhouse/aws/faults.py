"""Failures of AWS or its client, as the end of a sentence: what is wrong, the way out."""

from __future__ import annotations

from collections.abc import Mapping

LOG_IN = "set AWS_PROFILE, or log in (`aws sso login`, `aws configure`), then try again"
LOG_IN_AGAIN = "log in again (`aws sso login`, or new keys), then try again"
CORRECT_PROFILE = "correct the profile in ~/.aws/config, or set AWS_PROFILE to another one"
OTHER_FILES = "correct the file, or point AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE at others"
PROXIES = "correct HTTPS_PROXY and HTTP_PROXY, or list the address in NO_PROXY"
OTHER_PROFILE = "set AWS_PROFILE to one that `aws configure list-profiles` shows, or unset it"
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

_TYPES_BY_WAY_OUT = {
    LOG_IN: "NoCredentialsError",
    "give both halves of the key, or set AWS_PROFILE": "PartialCredentialsError",
    LOG_IN_AGAIN: "CredentialRetrievalError TokenRetrievalError UnauthorizedSSOTokenError "
    "SSOTokenLoadError SSOError RefreshWithMFAUnsupportedError",
    OTHER_PROFILE: "ProfileNotFound",
    OTHER_FILES: "ConfigParseError",
    "point AWS_CONFIG_FILE at a file that is there, or unset it": "ConfigNotFound",
    CORRECT_PROFILE: "InvalidConfigError InfiniteLoopConfigError UnknownCredentialError",
    REACH: "EndpointConnectionError ConnectTimeoutError ConnectionClosedError HTTPClientError",
    AGAIN: "ReadTimeoutError ResponseStreamingError IncompleteReadError",
    PROXIES: "ProxyConnectionError InvalidProxiesConfigError",
    "behind a proxy of your own, point AWS_CA_BUNDLE at its certificates": "SSLError",
    NOT_AWS: "ResponseParserError",
}
_BY_TYPE = {kind: way_out for way_out, kinds in _TYPES_BY_WAY_OUT.items() for kind in kinds.split()}
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


def fault_message(error: Exception) -> tuple[str, bool]:
    """Return what to say of a failed call, and whether it may pass by itself.

    AWS refused; or botocore did not reach it, or something else answered. A KeyError is of an
    answer that lacks what AWS always says.
    """
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        answer, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
        code = str(answer.get("Code"))
        way_out = _BY_CODE.get(code)
        message = f"AWS answered {code}: {_one_line(answer.get('Message'))}"
        is_temporary = metadata.get("HTTPStatusCode", 0) >= 500 or way_out == AGAIN
        return _with(message, way_out), is_temporary
    if isinstance(error, KeyError):
        return _with(f"the answer has no {_one_line(error)}", NOT_AWS), False
    kinds = [kind.__name__ for kind in type(error).__mro__]
    known = next((kind for kind in kinds if kind in _BY_TYPE), kinds[0])
    way_out = _BY_TYPE.get(known)
    message = _with(_WORDS.get(known, _one_line(error)), way_out or SETTINGS)
    return message, way_out in (REACH, AGAIN, NOT_AWS)


def client_message(error: Exception) -> str:
    """Return what to say of whatever else comes up while a client is made.

    Of settings and credentials that nobody checked before.
    """
    text = _one_line(error)
    if text.startswith("Invalid endpoint"):
        message = f"{text}, which is no address"
        return _with(
            message, "write AWS_ENDPOINT_URL, or endpoint_url in ~/.aws/config, as https://HOST"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return _with(f"the credentials cannot be had: {error.filename}: {error.strerror}", SETTINGS)
    return _with(f"the client's settings or credentials cannot be used: {text}", SETTINGS)


def _with(message: str, way_out: str | None) -> str:
    if way_out is None:
        return f"{message}."
    return f"{message}; {way_out}{'' if way_out.endswith('?') else '.'}"


def _one_line(message: object) -> str:
    text = " ".join(str(message).split()).rstrip(".")
    return text if len(text) <= 300 else f"{text[:297]}..."
