"""Shells that cannot reach AWS: their variables, files, and the error of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
SSO = b"""[default]
sso_session=s
sso_account_id=111122223333
sso_role_name=r
[sso-session s]
sso_region=us-east-1
sso_start_url=https://x.awsapps.com/start
"""


class Shell(NamedTuple):
    """A shell and the error that it leads to; `~` in a variable is the folder of the files."""

    cause: str
    message: str
    way_out: str
    variables: dict[str, str]
    files: Mapping[str, bytes] = MappingProxyType({})


def _file(cause: str, message: str, way_out: str, text: bytes) -> Shell:
    variables, files = {"AWS_CONFIG_FILE": "~/config"}, {"config": text}
    return Shell(cause, message, way_out, variables, files)


def _set(cause: str, message: str, way_out: str, **variables: str) -> Shell:
    return Shell(cause, message, way_out, {**KEYS, **variables})


ROLE = {"AWS_ROLE_ARN": "arn:aws:iam::111122223333:role/x"}
HOST = "http://127.0.0.1:9"
SHELLS = {
    "no-credentials": Shell(
        "NoCredentialsError", "no AWS credentials were found", "AWS_PROFILE", {}
    ),
    "half-a-key": Shell(
        "PartialCredentialsError",
        "missing: AWS_SECRET_ACCESS_KEY",
        "both halves",
        {"AWS_ACCESS_KEY_ID": "a"},
    ),
    "unknown-profile": Shell(
        "ProfileNotFound", "(nope)", "aws configure list-profiles", {"AWS_PROFILE": "nope"}
    ),
    "malformed-file": _file(
        "ConfigParseError", "Unable to parse config file", "correct the file", b"garbage\n[x\n"
    ),
    "not-logged-in": _file("SSOTokenLoadError", "SSO Token", "aws sso login", SSO),
    "no-such-program": _file(
        "FileNotFoundError",
        "/nope/x",
        "~/.aws/config",
        b"[default]\ncredential_process=/nope/x\n",
    ),
    "no-token-file": Shell(
        "FileNotFoundError",
        "/nope/t",
        "AWS_… variables",
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nope/t", **ROLE},
    ),
    "no-address": _set("ValueError", "x, which", "https://HOST", AWS_ENDPOINT_URL="x"),
    "nobody-there": _set("EndpointConnectionError", HOST[7:], "online", AWS_ENDPOINT_URL=HOST),
    "no-proxy-there": _set("ProxyConnectionError", HOST[7:], "NO_PROXY", HTTPS_PROXY=HOST),
}
