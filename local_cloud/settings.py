"""What the local cloud's process is told, and the parts of its own environment that it hands on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROXIES = frozenset(("http_proxy", "https_proxy", "all_proxy", "no_proxy"))
CERTIFICATES = ("SSL_CERT_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
BENCHMARK_SECONDS = "ROUNDHOUSE_BENCHMARK_SECONDS"
PASSED_ON_PREFIXES = (*CERTIFICATES, "PIP_", "UV_", "NODE_", BENCHMARK_SECONDS)
SECONDS_PER_MINUTE = "ROUNDHOUSE_CLOUD_SECONDS_PER_MINUTE"
SECONDS_PER_MINUTE_DEFAULT = 1.0


class SettingsError(Exception):
    """A setting of the local cloud cannot be used; the message is one sentence for the user."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Code, environments, state folder, port on 127.0.0.1, and pace of time of a local cloud.

    `seconds_per_minute` scales AWS's waits: bake times, termination waits, deliveries, cooldowns,
    periods of alarms and metrics. Timeouts of real processes, such as a server's start, it does not
    scale. The cloud binds the port itself where `listener`, the descriptor of a socket, is None.
    """

    root: Path
    environments: Path
    state: Path
    port: int
    seconds_per_minute: float = SECONDS_PER_MINUTE_DEFAULT
    listener: int | None = None

    def scaled_wait(self, aws_seconds: float) -> float:
        """How many seconds a wait takes here that takes `aws_seconds` on AWS."""
        return aws_seconds * self.seconds_per_minute / 60

    @property
    def endpoint_url(self) -> str:
        """Where every AWS client of this cloud sends its requests."""
        return f"http://127.0.0.1:{self.port}"


def seconds_per_minute() -> float:
    """Return the pace of this process's local cloud: 1 unless the environment says otherwise."""
    given = os.environ.get(SECONDS_PER_MINUTE, "")
    try:
        seconds = float(given) if given else SECONDS_PER_MINUTE_DEFAULT
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 60:
        raise SettingsError(
            f"{SECONDS_PER_MINUTE} is {given!r}: it takes a number above 0, and 60 runs at AWS's "
            "own pace"
        )
    return seconds


def build_environment() -> dict[str, str]:
    """Return what a build takes from its user: package indexes, and its benchmark's seconds."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.lower() in PROXIES or name.startswith(PASSED_ON_PREFIXES)
    }


def configure_emulator(settings: Settings) -> None:
    """Set MiniStack's environment: loopback only, no Docker, no other listener, no persistence."""
    os.environ.update(
        BIND_HOST="127.0.0.1",
        GATEWAY_PORT=str(settings.port),
        DOCKER_HOST=f"unix://{settings.state}/no-docker.sock",
        SFTP_ENABLED="0",
        IOT_MTLS_ENABLED="0",
        PERSIST_STATE="0",
        S3_PERSIST="0",
        MINISTACK_REGION="us-east-1",
        AWS_ENDPOINT_URL=settings.endpoint_url,
        AWS_EC2_METADATA_DISABLED="true",
        LOG_LEVEL="WARNING",
    )
    for name in ("SERVICES", "LOCALSTACK_PERSISTENCE", "USE_SSL", "AWS_CA_BUNDLE", "EDGE_PORT"):
        os.environ.pop(name, None)
