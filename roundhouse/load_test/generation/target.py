"""Where requests for text go: a server's URL, or one of the two paths of a SageMaker endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import endpoint_name
from onboarding.text_generation.spec import TextGenerationSpec
from roundhouse.load_test.destination import Destination, Sign, server_url, signer
from roundhouse.load_test.generation.requests import Schema

COMPONENT_HEADER = "X-Amzn-SageMaker-Inference-Component"
CHAT_PATH = "/v1/chat/completions"


@dataclass(frozen=True, kw_only=True)
class GenerationTarget:
    """A destination with the schema it takes; `is_framed`: answers are AWS's event stream."""

    subject: str
    destination: Destination
    schema: Schema
    model: str | None
    """The name that requests give; None: the server's only one."""
    is_framed: bool = False

    def sign(self) -> Sign | None:
        """Return what signs each request. Raises AwsError without credentials."""
        return signer(self.destination)


def server_target(url: str, model: str | None) -> GenerationTarget:
    """Return a server by its URL; without a path it is that of chat. Raises RoundhouseError."""
    parts = urlsplit(server_url(url))
    if urlsplit(url).path in ("", "/"):
        parts = parts._replace(path=CHAT_PATH)
    is_text = parts.path.endswith("/completions") and not parts.path.endswith(CHAT_PATH)
    return GenerationTarget(
        subject=f"{'server' if model is None else model} at {parts.netloc}",
        destination=Destination(url=parts.geturl()),
        schema="completion" if is_text else "chat",
        model=model,
    )


def endpoint_target(
    environment: EnvironmentSpec, spec: TextGenerationSpec, runtime_url: str
) -> GenerationTarget:
    """Return the stream of a deployed endpoint, whose inference component has its name."""
    name = endpoint_name(environment, spec.name)
    has_component = spec.endpoint.kind == "inference-component"
    destination = Destination(
        url=f"{runtime_url}/endpoints/{name}/invocations-response-stream",
        headers={COMPONENT_HEADER: name} if has_component else {},
        region=environment.region,
    )
    return GenerationTarget(
        subject=name,
        destination=destination,
        schema="chat",
        model=spec.name,
        is_framed=True,
    )
