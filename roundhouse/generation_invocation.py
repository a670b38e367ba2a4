"""Requests to a text generator through SageMaker's API: streamed or whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from container.generation_client import (
    Answer,
    GenerationClient,
    StreamBroken,
    chat_request,
    error_sentence,
    read_answer,
)
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import adapter_components
from onboarding.names import adapter_component, adapter_endpoint, endpoint_name
from onboarding.text_generation.spec import TextGenerationSpec
from roundhouse.aws.clients import Clients, calling
from roundhouse.errors import (
    NotReadyError,
    RoundhouseError,
    UsageError,
    WrongAnswerError,
)
from roundhouse.invocation import NO_CAPACITY, ask_until, no_capacity
from roundhouse.session import Session, valid_tree


@dataclass(frozen=True, kw_only=True)
class GeneratorAddress:
    """A text generator's endpoint, and the inference component behind it."""

    name: str
    endpoint: str
    component: str | None


@dataclass(frozen=True, kw_only=True)
class TimedAnswer:
    """An answer with its times; `first_seconds` is None where it was not streamed."""

    answer: Answer
    seconds: float
    first_seconds: float | None

    @property
    def tokens_per_second(self) -> float | None:
        """Return the answer's tokens after the first by the time that they took."""
        usage = self.answer.usage
        if usage is None or self.first_seconds is None or usage.completion_tokens < 2:
            return None
        return (usage.completion_tokens - 1) / max(self.seconds - self.first_seconds, 1e-9)

    def as_dict(self, endpoint: str) -> dict[str, Any]:
        """Return plain JSON."""
        answer, usage, rate = self.answer, self.answer.usage, self.tokens_per_second
        calls = [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
        return {
            "endpoint": endpoint,
            "text": answer.text,
            "tool_calls": calls,
            "finish_reason": answer.finish_reason,
            "prompt_tokens": None if usage is None else usage.prompt_tokens,
            "output_tokens": None if usage is None else usage.completion_tokens,
            "seconds": round(self.seconds, 3),
            "ttft_ms": None if self.first_seconds is None else round(self.first_seconds * 1000, 1),
            "output_tokens_per_second": None if rate is None else round(rate, 1),
        }

    def sentence(self) -> str:
        """Return the times as one line."""
        usage, rate, parts = self.answer.usage, self.tokens_per_second, []
        if self.first_seconds is not None:
            parts.append(f"{self.first_seconds * 1000:.0f} ms to the first token")
        if usage is not None:
            parts.append(f"{usage.prompt_tokens} + {usage.completion_tokens} tokens")
        if rate is not None:
            parts.append(f"{rate:.1f} tokens/s")
        return ", ".join((*parts, f"{self.seconds:.2f} s ({self.answer.finish_reason})"))


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What a command asks; `text` None asks nothing."""

    text: str | None
    max_tokens: int | None = None
    stream: bool = False

    def as_request(self) -> dict[str, Any]:
        """Return OpenAI's request. Raises UsageError for a prompt without words."""
        text = "" if self.text is None else self.text
        if not text.strip():
            raise UsageError("--prompt: is empty; give words.")
        return chat_request(text, max_tokens=self.max_tokens, stream=self.stream)


def generator_address(
    environment: EnvironmentSpec, generators: Mapping[str, TextGenerationSpec], endpoint: str
) -> GeneratorAddress | None:
    """Return the address of a text generator, named as in its file or as in SageMaker.

    `<model>-<adapter>` is an adapter's: SageMaker tells the copies of its base which one is asked.
    """
    for name, spec in generators.items():
        full = endpoint_name(environment, name)
        if endpoint in (name, full):
            return GeneratorAddress(name=name, endpoint=full, component=full)
        for adapter in spec.serving.adapters:
            own = adapter_endpoint(name, adapter.name)
            component = adapter_component(environment, name, adapter.name)
            if endpoint in (own, component):
                return GeneratorAddress(name=own, endpoint=full, component=component)
    return None


def find_generator(session: Session, endpoint: str, prompt: Prompt) -> GeneratorAddress | None:
    """Return a text generator's address in an environment; None for another endpoint.

    Raises UsageError for a generator without a prompt, and a prompt to something else.
    """
    view = valid_tree(session.paths).views[session.environment.name]
    specs = {name: file.spec for name, file in view.generators.items()}
    address = generator_address(session.environment, specs, endpoint)
    if address is not None and prompt.text is None:
        raise UsageError(f"{address.name}: is a text generator; give --prompt TEXT.")
    if address is None and prompt.text is not None:
        adapters = (name for name, _ in adapter_components(view.generators))
        known = ", ".join(sorted([*specs, *adapters]))
        raise UsageError(
            f"--prompt: {endpoint!r} is no text generator of {session.environment.name}; allowed: "
            f"{known if known else 'it has none'}."
        )
    return address


@dataclass(frozen=True, kw_only=True)
class Generator:
    """One text generator that can be asked."""

    address: GeneratorAddress
    clients: Clients
    pause: Callable[[float], None] = field(default=time.sleep)

    def ask(self, request: Mapping[str, Any], say: Callable[[str], None]) -> TimedAnswer:
        """Return the answer; `say` gets its text as it comes.

        Raises WrongAnswerError for an answer that is not whole, RoundhouseError where the request
        is refused, NotReadyError where nothing can answer now.
        """
        begin, first = time.monotonic(), None
        with _endpoint_errors(self.address):
            if not request.get("stream"):
                answer = self._client().ask(request)
                say(answer.text)
                return TimedAnswer(
                    answer=answer, seconds=time.monotonic() - begin, first_seconds=None
                )
            events = []
            for event in self._client().stream(request):
                if first is None and (event.text or event.tool_calls):
                    first = time.monotonic() - begin
                say(event.text)
                events.append(event)
        seconds = time.monotonic() - begin
        return TimedAnswer(answer=read_answer(events), seconds=seconds, first_seconds=first)

    def ask_until(
        self,
        request: Mapping[str, Any],
        say: Callable[[str], None],
        seconds: float,
        waiting: Callable[[str], None],
    ) -> TimedAnswer:
        """Ask again while the component has no copies, for so many seconds; raises as `ask`."""
        return ask_until(
            lambda: self.ask(request, say),
            self.address.name,
            seconds,
            waiting,
            pause=self.pause,
        )

    def _client(self) -> GenerationClient:
        return GenerationClient(
            runtime=self.clients("sagemaker-runtime"),
            endpoint=self.address.endpoint,
            component=self.address.component,
        )


@contextmanager
def _endpoint_errors(address: GeneratorAddress) -> Iterator[None]:
    """Turn the client's errors and AWS's into this command's."""
    from botocore.exceptions import ClientError

    try:
        with calling(f"Endpoint {address.endpoint}"):
            try:
                yield
            except ClientError as error:
                _raise_known(address, error.response)
                raise
    except StreamBroken as fault:
        raise WrongAnswerError(
            f"Endpoint {address.endpoint}: {str(fault).rstrip('.')}; ask again."
        ) from fault


def _raise_known(address: GeneratorAddress, response: Mapping[str, Any]) -> None:
    """Raise what the container says, or that nothing is there to say it."""
    error = response.get("Error", {})
    if "OriginalStatusCode" in response:
        words = str(response.get("OriginalMessage", ""))
        raise _refusal(address, int(response["OriginalStatusCode"]), words)
    message = str(error.get("Message"))
    if NO_CAPACITY in message:
        raise no_capacity(address.endpoint)
    if error.get("Code") == "ValidationError" and "not found" in message:
        raise NotReadyError(
            f"Endpoint {address.endpoint}: AWS answered {message.rstrip('.')}; `roundhouse deploy` "
            "deploys what is not there."
        )


def _refusal(address: GeneratorAddress, status: int, words: str) -> RoundhouseError:
    """Return the fault of an answer by its status."""
    if NO_CAPACITY in words:
        return no_capacity(address.endpoint)
    try:
        document = json.loads(words)
    except ValueError:
        document = {}
    has_error = isinstance(document, dict) and bool(document)
    text = error_sentence(document) if has_error else words[:500]
    sentence = f"Endpoint {address.endpoint}: the server answered {status}: {text.rstrip('.')}"
    if status < 500:
        return RoundhouseError(f"{sentence}.")
    return NotReadyError(f"{sentence}; ask again in some seconds.")
