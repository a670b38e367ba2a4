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
    token: str | None = None
    """A bearer token, for the OpenAI path."""

    def sign(self) -> Sign | None:
        """Return what signs each request. Raises AwsError without credentials."""
        return None if self.token is not None else signer(self.destination)


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
    environment: EnvironmentSpec, spec: TextGenerationSpec, runtime_url: str, token: str | None
) -> GenerationTarget:
    """Return a deployed endpoint; with a token its OpenAI path, else the stream of invocations.

    The inference component has the endpoint's name.
    """
    name = endpoint_name(environment, spec.name)
    has_component = spec.endpoint.kind == "inference-component"
    if token is not None:
        component = f"/inference-components/{name}" if has_component else ""
        destination = Destination(
            url=f"{runtime_url}/endpoints/{name}{component}/openai{CHAT_PATH}",
            headers={"Authorization": f"Bearer {token}"},
        )
    else:
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
        is_framed=token is None,
        token=token,
    )
