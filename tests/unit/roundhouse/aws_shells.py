"""Shells that cannot reach AWS: their variables and files, and what is said of each."""

from __future__ import annotations

from dataclasses import dataclass, field

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
SSO = b"""[default]
sso_session=s
sso_account_id=111122223333
sso_role_name=r
[sso-session s]
sso_region=us-east-1
sso_start_url=https://x.awsapps.com/start
"""


@dataclass(frozen=True, kw_only=True)
class Shell:
    """`~` in a variable is the folder of the files."""

    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    reason: str
    says: str
    way_out: str


def _profile(text: bytes, *, reason: str, says: str, way_out: str) -> Shell:
    return Shell(
        variables={"AWS_CONFIG_FILE": "~/config"},
        files={"config": text},
        reason=reason,
        says=says,
        way_out=way_out,
    )


def _set(reason: str, says: str, way_out: str, **variables: str) -> Shell:
    return Shell(variables={**KEYS, **variables}, reason=reason, says=says, way_out=way_out)


SHELLS = {
    "no-credentials": Shell(
        reason="NoCredentialsError", says="no AWS credentials were found", way_out="AWS_PROFILE"
    ),
    "half-a-key": Shell(
        variables={"AWS_ACCESS_KEY_ID": "a"},
        reason="PartialCredentialsError",
        says="missing: AWS_SECRET_ACCESS_KEY",
        way_out="both halves",
    ),
    "unknown-profile": Shell(
        variables={"AWS_PROFILE": "nope"},
        reason="ProfileNotFound",
        says="(nope)",
        way_out="aws configure list-profiles",
    ),
    "malformed-file": _profile(
        b"garbage\n[x\n",
        reason="ConfigParseError",
        says="Unable to parse config file",
        way_out="correct the file",
    ),
    "not-text": _profile(
        b"[default]\nregion=\xff\n",
        reason="ConfigParseError",
        says="config",
        way_out="correct the file",
    ),
    "role-of-no-profile": _profile(
        b"[default]\nrole_arn=arn:aws:iam::111122223333:role/x\nsource_profile=nope\n",
        reason="InvalidConfigError",
        says='"nope"',
        way_out="correct the profile",
    ),
    "not-logged-in": _profile(
        SSO, reason="SSOTokenLoadError", says="SSO Token", way_out="aws sso login"
    ),
    "no-such-program": _profile(
        b"[default]\ncredential_process=/nope/x\n",
        reason="FileNotFoundError",
        says="/nope/x",
        way_out="~/.aws/config",
    ),
    "a-program-that-says-no-json": _profile(
        b"[default]\ncredential_process=/bin/echo hello\n",
        reason="JSONDecodeError",
        says="credentials",
        way_out="~/.aws/config",
    ),
    "no-token-file": Shell(
        variables={
            "AWS_WEB_IDENTITY_TOKEN_FILE": "/nope/t",
            "AWS_ROLE_ARN": "arn:aws:iam::111122223333:role/x",
        },
        reason="FileNotFoundError",
        says="/nope/t",
        way_out="AWS_… variables",
    ),
    "no-address": _set(
        "InvalidEndpoint",
        "garbage, which is no address",
        "https://HOST",
        AWS_ENDPOINT_URL="garbage",
    ),
    "no-address-of-s3": _set(
        "InvalidEndpoint", "http://, which", "https://HOST", AWS_ENDPOINT_URL_S3="http://"
    ),
    "nobody-there": _set(
        "EndpointConnectionError", "127.0.0.1:9", "online", AWS_ENDPOINT_URL="http://127.0.0.1:9"
    ),
    "no-proxy-there": _set(
        "ProxyConnectionError", "127.0.0.1:9", "NO_PROXY", HTTPS_PROXY="http://127.0.0.1:9"
    ),
    "no-number": _set("ValueError", "'zero'", "AWS_… variables", AWS_MAX_ATTEMPTS="zero"),
    "no-retry-mode": _set(
        "InvalidRetryModeError", "bogus", "AWS_… variables", AWS_RETRY_MODE="bogus"
    ),
    "a-stranger-asked-for-credentials": Shell(
        variables={"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://stranger.example/x"},
        reason="ValueError",
        says="Unsupported host",
        way_out="AWS_… variables",
    ),
}
