"""12,000 hostile requests through the endpoints of a local cloud, one before each server."""

from __future__ import annotations

import asyncio
import io
import json
import re
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.child import process_trees
from benchmarks.context import Context
from benchmarks.hostile.clients import Tally, ask_all
from benchmarks.hostile.requests import TEXTS, deep_requests, hostile_requests, lying_requests
from benchmarks.hostile.run import SEED, WARM_UP, Innocents, asking, memory_later, outcome
from benchmarks.measure import Measure, with_command
from benchmarks.servers.fixtures import minilm
from benchmarks.servers.running_server import held_mb
from benchmarks.trees import MODEL
from local_cloud import lifecycle
from local_cloud.address import CloudAddress
from onboarding.serve_environment import serve_environment
from roundhouse import settings
from roundhouse.aws.clients import Client, aws_clients

BODIES, LIARS, DEEP = 9900, 2000, 100
ACCOUNT, REGION, BUCKET = "000000000000", "us-east-1", "hostile"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/hostile"
SERVERS: dict[str, tuple[str, Mapping[str, str]]] = {
    "python-server": (r"-m\0container\.server\0serve", {}),
    "triton": (r"triton_front|tritonserver|triton_python_backend_stub", serve_environment(MODEL)),
}
"""How the command lines of an image's processes are known, and its container's variables."""
LONGEST_START_SECONDS = 120.0
SIGNED = (
    f"Host: localhost\r\nAuthorization: AWS4-HMAC-SHA256 Credential={ACCOUNT}/20260101/{REGION}/"
    "sagemaker/aws4_request, SignedHeaders=host, Signature=0\r\n"
).encode()
"""What the local cloud finds account and service by; it checks no signatures."""
CONTENT_TYPE = re.compile(rb"\r\nContent-Type: ([\x20-\x7e]{1,1024})(?=\r\n)", re.IGNORECASE)
"""The header of the requests that InvokeEndpoint passes on, of characters that its API takes."""
COMMAND = (
    "make bench BENCH=hostile_local_cloud: MiniLM FP32 behind endpoints of the local cloud, all on "
    "the same cores"
)


@dataclass
class CloudTally(Tally):
    """What the local runtime answers: the server's own refusals are ModelErrors of its status."""

    def take(self, request: bytes, status: int, body: bytes, *, is_head: bool = False) -> None:
        """Judge one answer: the runtime's refusal, or the server's as the server alone gives it."""
        document = json.loads(body) if status >= 400 else {}
        if status == 424:
            message = str(document.get("OriginalMessage", ""))
            super().take(request, int(document["OriginalStatusCode"]), message.encode())
        elif status == 200 or (status == 400 and document["__type"] == "ValidationError"):
            self.statuses[status] += 1
        else:
            self.wrong.append(f"{request[:300]!r}... -> {status} {body[:300]!r}")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint in service; `processes` are those of its server."""

    name: str
    cloud: CloudAddress

    @property
    def head(self) -> bytes:
        """The first lines of a request to it."""
        return b"POST /endpoints/%b/invocations HTTP/1.1\r\n%b" % (self.name.encode(), SIGNED)

    def aimed(self, requests: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Return bodies and content types as invocations of this endpoint."""
        for _, request in requests:
            lines, _, body = request.partition(b"\r\n\r\n")
            kind = CONTENT_TYPE.search(lines)
            more = b"" if kind is None else b"Content-Type: %b\r\n" % kind[1]
            yield "POST", b"%b%bContent-Length: %d\r\n\r\n%b" % (self.head, more, len(body), body)

    def processes(self) -> frozenset[int]:
        """Return the processes of its server."""
        pattern = re.compile(SERVERS[self.name][0].encode())
        return frozenset(
            pid for pid in process_trees([self.cloud.pid]) if pattern.search(_command_line(pid))
        )


def hostile_local_cloud(context: Context) -> list[Measure]:
    """Measure each server behind an endpoint. Raises ValueError when one does not start."""
    folder = context.folder("hostile")
    archive = minilm(context, folder).archive
    state = folder / "cloud"
    address = lifecycle.start(context.paths.code, state)
    try:
        settings.adopt_aws(lifecycle.client_environment(address, context.variables, region=REGION))
        clients = aws_clients(REGION)
        s3 = clients("s3")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=_pack(archive))
        measures: list[Measure] = []
        for name in SERVERS:
            endpoint = Endpoint(name=name, cloud=address)
            _create(clients("sagemaker"), name)
            measures += _measures_of(endpoint)
            clients("sagemaker").delete_endpoint(EndpointName=name)
    finally:
        lifecycle.stop(state)
    return with_command(COMMAND, measures)


def _measures_of(endpoint: Endpoint) -> Iterator[Measure]:
    port, attack = endpoint.cloud.port, (BODIES, LIARS, DEEP)
    asyncio.run(ask_all(port, endpoint.aimed(_hostile(SEED + 1, WARM_UP, 10, 6)), CloudTally()))
    processes = endpoint.processes()
    before = held_mb(processes)
    tally, innocents = asyncio.run(_attack(endpoint, attack))
    after = memory_later(lambda: held_mb(processes), before)
    crashes = len(processes - endpoint.processes())
    name = f"{endpoint.name} behind an endpoint"
    yield from outcome(name, tally, innocents, (before, after), crashes=crashes)


async def _attack(endpoint: Endpoint, counts: tuple[int, int, int]) -> tuple[Tally, Innocents]:
    tally, innocents = CloudTally(), Innocents(endpoint.cloud.port, endpoint.head)
    async with asking(innocents):
        await ask_all(endpoint.cloud.port, endpoint.aimed(_hostile(SEED, *counts)), tally)
    return tally, innocents


def _hostile(seed: int, bodies: int, liars: int, deep: int) -> Iterator[tuple[str, bytes]]:
    spoiled = hostile_requests(seed, bodies, TEXTS)
    return chain(spoiled, lying_requests(seed, liars), deep_requests(deep))


def _create(sagemaker: Client, name: str) -> None:
    """Create an endpoint of one image, and wait until it is in service. Raises ValueError."""
    container = {
        "Image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{name}:local",
        "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz",
        "Environment": dict(SERVERS[name][1]),
    }
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.c7i.large",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    deadline = time.monotonic() + LONGEST_START_SECONDS
    state: dict[str, Any] = {"EndpointStatus": "Creating"}
    while state["EndpointStatus"] == "Creating" and time.monotonic() < deadline:
        time.sleep(0.2)
        state = sagemaker.describe_endpoint(EndpointName=name)
    if state["EndpointStatus"] != "InService":
        raise ValueError(f"{name} is {state['EndpointStatus']}: {state.get('FailureReason')}")


def _pack(folder: Path) -> bytes:
    content = io.BytesIO()
    with closing(tarfile.open(fileobj=content, mode="w:gz", compresslevel=1)) as tar:
        tar.add(folder, arcname=".")
    return content.getvalue()


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
