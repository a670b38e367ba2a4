"""What the local cloud's process is told, and the parts of its own environment that it hands on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PASSED_ON = frozenset(
    {
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
        "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    }
)  # fmt: skip
PASSED_ON_PREFIXES = ("PIP_", "UV_", "NODE_")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The repository whose environments run the servers, the state folder, and the port on 127.0.0.1."""

    root: Path
    state: Path
    port: int

    @property
    def endpoint_url(self) -> str:
        """Where every AWS client of this cloud sends its requests."""
        return f"http://127.0.0.1:{self.port}"


def package_index_environment() -> dict[str, str]:
    """The variables that let a build reach package indexes as its user does: pip, uv, Node, proxies, certificates."""
    return {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)}


def configure_emulator(settings: Settings) -> None:
    """Sets what MiniStack reads from the environment: loopback only, no Docker, no other listener, nothing kept."""
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
