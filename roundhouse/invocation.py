"""Requests to an endpoint, with texts or with arrays, through the client in container/client.py."""

from __future__ import annotations

import io
import math
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from onboarding.deployment import Deployment, Target
from onboarding.names import artifact_bucket, endpoint_name, requests_prefix, target_model
from roundhouse.aws.clients import ABSENT, Client, Clients
from roundhouse.errors import NotReadyError, RoundhouseError, WrongAnswerError
from roundhouse.text import choices

if TYPE_CHECKING:
    # The client brings numpy, which commands that ask nothing need not load.
    from container.client import EndpointClient
Answered = TypeVar("Answered")
POLL_SECONDS = 1.0
STATUS = re.compile(r"\((\d{3})\)")
"""Of the container, in the sentence that SageMaker leaves where a request failed."""
NO_CAPACITY = "no capacity"
"""Of AWS's sentence for a component without copies."""
RETRY_SECONDS = 5.0
Vector = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Address:
    """An endpoint, and behind it a target model, or an inference component that scales to zero."""

    endpoint: str
    target_model: str | None
    component: str | None = None


class NoCapacityError(NotReadyError):
    """The component has no copies now."""


def address(
    deployments: Sequence[Deployment], endpoint: str, model: str | None
) -> tuple[Address, Target]:
    """Return the address of a model at an endpoint, named as in its file or as in SageMaker.

    Raises RoundhouseError.
    """
    deployment = find_deployment(deployments, endpoint)
    name = endpoint_name(deployment.environment, deployment.name)
    target = _target(deployment, model)
    return Address(
        endpoint=name,
        target_model=target_model(target.engine_key) if deployment.multi_model else None,
        component=name if deployment.is_component else None,
    ), target


def ask_until(
    ask: Callable[[], Answered],
    name: str,
    seconds: float,
    waiting: Callable[[str], object],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Answered:
    """Ask again while an endpoint's component has no copies, for so many seconds.

    `waiting` gets a sentence before each pause. Raises what `ask` raises.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except NoCapacityError:
            if time.monotonic() + RETRY_SECONDS > end:
                raise
            waiting(f"{name} has no copy yet; asking again.")
            pause(RETRY_SECONDS)


def no_capacity(endpoint: str) -> NoCapacityError:
    """Return the fault of an endpoint whose component has no copies."""
    return NoCapacityError(
        f"Endpoint {endpoint}: has no copy that answers, since it is scaled to zero or still "
        "starts; the request has asked for one: wait some minutes, or let --wait SECONDS ask again."
    )


def invoke_texts(runtime: Client, address: Address, texts: Sequence[str]) -> tuple[Vector, ...]:
    """Return one vector per text; raises as `endpoint_client` does."""
    with endpoint_client(runtime, address) as client:
        return tuple(map(tuple, client.embed(texts).tolist()))


class AsynchronousFailure(Exception):
    """What lies in S3 in place of an answer; `response` is as botocore's ClientError has it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        status = STATUS.search(sentence)
        self.response: Mapping[str, Any] = {
            "OriginalMessage": sentence,
            "OriginalStatusCode": None if status is None else int(status[1]),
        }


@dataclass(kw_only=True)
class AsynchronousRuntime:
    """Stands for a sagemaker-runtime client in `EndpointClient`.

    Bodies are uploaded below `prefix` of `bucket`, where the endpoint's role may read them, and
    stay there until the bucket's lifecycle removes them, as answers do.
    """

    runtime: Client
    s3: Client
    bucket: str
    prefix: str
    seconds: float
    """How long an answer is awaited."""
    say: Callable[[str], object] = print
    pause: Callable[[float], None] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)

    def invoke_endpoint(self, **request: Any) -> Mapping[str, Any]:
        """Return the answer of EndpointName to Body and ContentType, as InvokeEndpoint does.

        Raises AsynchronousFailure with the sentence in S3, TimeoutError, botocore's faults.
        """
        found = self._answer(request["EndpointName"], request["Body"], request["ContentType"])
        return {"Body": io.BytesIO(found["Body"].read()), "ContentType": found["ContentType"]}

    def _answer(self, endpoint: str, body: Any, content_type: str) -> Mapping[str, Any]:
        """Upload a body, queue it, and return the object of its answer once it lies in S3."""
        key = f"{self.prefix}/{uuid.uuid4()}"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType=content_type)
        queued = self.runtime.invoke_endpoint_async(
            EndpointName=endpoint,
            ContentType=content_type,
            InputLocation=f"s3://{self.bucket}/{key}",
        )
        answer, failure = queued["OutputLocation"], queued.get("FailureLocation")
        self.say(f"Queued; the answer will be {answer}.")
        deadline = self.clock() + self.seconds
        while True:
            if (found := self._read(answer)) is not None:
                return found
            if failure and (found := self._read(failure)) is not None:
                raise AsynchronousFailure(found["Body"].read().decode(errors="replace").strip())
            if self.clock() >= deadline:
                raise TimeoutError(
                    f"no answer lay at {answer} within {self.seconds:g} s; it may still come"
                )
            self.pause(POLL_SECONDS)

    def _read(self, location: str) -> Mapping[str, Any] | None:
        """Return an object with its body to read; None where there is none yet."""
        url = urlsplit(location)
        try:
            found: Mapping[str, Any] = self.s3.get_object(
                Bucket=url.netloc, Key=url.path.lstrip("/")
            )
        except Exception as fault:
            response = getattr(fault, "response", None)
            if isinstance(response, Mapping) and response.get("Error", {}).get("Code") in ABSENT:
                return None
            raise
        return found


def asynchronous_runtime(
    clients: Clients, deployment: Deployment, seconds: float, say: Callable[[str], object]
) -> AsynchronousRuntime:
    """Return what asks a deployment's queue."""
    return AsynchronousRuntime(
        runtime=clients("sagemaker-runtime"),
        s3=clients("s3"),
        bucket=artifact_bucket(deployment.environment),
        prefix=requests_prefix(deployment.environment, deployment.name),
        seconds=seconds,
        say=say,
    )


@contextmanager
def endpoint_client(
    runtime: Client, address: Address, *, binary: bool = False
) -> Iterator[EndpointClient]:
    """Give the client of an endpoint, whose errors in the block become this command's.

    `binary`: tensors in KServe's binary extension, not in JSON. Raises NotReadyError when SageMaker
    refuses, RoundhouseError when the request itself is refused, WrongAnswerError when the answer is
    not one of the model's task.
    """
    from container.client import AnswerFault, EndpointClient, EndpointFault
    from container.wire import InputFault
    from roundhouse.aws.clients import calling

    client = EndpointClient(
        runtime=runtime,
        endpoint=address.endpoint,
        target_model=address.target_model,
        component=address.component,
        binary=binary,
    )
    try:
        yield client
    except AnswerFault as error:
        raise WrongAnswerError(str(error)) from error
    except InputFault as error:
        raise RoundhouseError(str(error)) from error
    except EndpointFault as error:
        refusal = _refusal(error)
        if NO_CAPACITY in str(refusal.get("Error", {}).get("Message")):
            raise no_capacity(address.endpoint) from error
        if error.__cause__ is not None and not refusal:
            with calling(f"Endpoint {address.endpoint}"):
                # botocore's own errors, such as missing credentials, read as everywhere else.
                raise error.__cause__ from None
        message = f"{str(error).rstrip('.')}{_way_out(refusal)}."
        if _is_of_the_request(refusal):
            raise RoundhouseError(message) from error
        raise NotReadyError(message) from error


def _is_of_the_request(refusal: Mapping[str, Any]) -> bool:
    """Return whether the same request is refused again: the server's 4xx, or a body too large."""
    status = refusal.get("OriginalStatusCode")
    http_status = refusal.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return http_status == 413 or (isinstance(status, int) and status in range(400, 500))


def _way_out(refusal: Mapping[str, Any]) -> str:
    """Return what to do about AWS's own refusals, which do not say it; the servers' do."""
    error = refusal.get("Error", {})
    if error.get("Code") == "ValidationError" and "not found" in str(error.get("Message")):
        return "; `roundhouse deploy` deploys what is not there"
    if refusal.get("ResponseMetadata", {}).get("HTTPStatusCode") == 413:
        return "; send less at once"
    return "; try again later" if error.get("Code") == "ThrottlingException" else ""


def _refusal(error: Exception) -> Mapping[str, Any]:
    """Return AWS's answer as botocore's ClientError has it; empty where there was none."""
    response = getattr(error.__cause__, "response", None)
    return response if isinstance(response, Mapping) else {}


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 when one has no length."""
    lengths = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths > 0 else 0.0


def find_deployment(deployments: Sequence[Deployment], endpoint: str) -> Deployment:
    for deployment in deployments:
        if endpoint in (deployment.name, endpoint_name(deployment.environment, deployment.name)):
            return deployment
    known = [deployment.name for deployment in deployments]
    raise RoundhouseError(
        f"{endpoint!r}: no such endpoint in this environment; {choices(endpoint, known)}"
    )


def _target(deployment: Deployment, model: str | None) -> Target:
    if model is None and len(deployment.targets) == 1:
        return deployment.targets[0]
    for target in deployment.targets:
        if target.model.name == model:
            return target
    known = [target.model.name for target in deployment.targets]
    if model is None:
        raise RoundhouseError(
            f"{deployment.name}: is shared by several models; name one with --model; "
            f"{choices(None, known)}"
        )
    raise RoundhouseError(
        f"--model {model}: endpoint {deployment.name} does not serve it; {choices(model, known)}"
    )
