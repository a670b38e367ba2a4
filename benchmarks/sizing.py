"""Instances that `compare` predicts for a demand, held against that demand: in the local cloud.

The knee of one instance is measured as a comparison measures a cell's; the demand is then replayed
as Poisson arrivals on the predicted count, and on fewer. The servers take a fixed time for each
request, one at a time, since two cores cannot hold several engines that compute.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import random
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.context import Context
from benchmarks.measure import Measure, at_most, of_rounds, with_command
from benchmarks.scaling.endpoint import IMAGE, ROLE
from local_cloud import lifecycle
from local_cloud.containers.images import OVERRIDES_FILE
from roundhouse import settings
from roundhouse.aws.clients import Clients, aws_clients
from roundhouse.compare.sizing import size
from roundhouse.load_test.destination import Destination
from roundhouse.load_test.inputs import read_inputs
from roundhouse.load_test.knee import KneeSearch
from roundhouse.load_test.load_test import LoadTest, Runner
from roundhouse.load_test.measurement import samples_needed
from roundhouse.load_test.options import LoadOptions, Loop, Phase
from roundhouse.load_test.saturation import SLO_PERCENTILE

PROGRAM = Path(__file__).parent / "scaling" / "programs" / "one_at_a_time.py"
REGION, BUCKET, MODEL = "us-east-1", "sizing", "sizing"
SLO_MS = 400.0
"""Eight times what one request takes."""
DEMANDS = (1.3, 3.6)
"""Of what one instance holds: the least and the most that is drawn."""
SURPLUS = 1.15
"""More requests than the percentile needs, as arrivals vary."""
REPLAYS = 3
LONGEST_START_SECONDS = 120.0
COMMAND = (
    "make bench BENCH=sizing: servers of 50 ms for each request, one at a time; SLO p99 400 ms; "
    "Poisson arrivals; the least instances, without the spare one"
)


def sizing(context: Context) -> list[Measure]:
    """Measure demands of several sizes. Raises ValueError where a server holds no rate."""
    folder = context.empty_folder("sizing")
    (folder / "texts.txt").write_text("the signal box\n", encoding="utf-8")
    measures = []
    with _cloud(context, folder / "cloud") as clients:
        endpoints = Endpoints(clients=clients, texts=folder / "texts.txt")
        endpoints.create_model()
        knee = asyncio.run(KneeSearch(test=endpoints.load(1)).run())
        if knee.rate is None:
            raise ValueError(f"one instance holds no rate: {knee.reason}")
        measures.append(Measure("one instance holds", round(knee.rate, 2), "requests/s"))
        for number in range(context.rounds(2)):
            demand = knee.rate * random.Random(number).uniform(*DEMANDS)
            measures += _replay(endpoints, demand, knee.rate, number)
    return with_command(COMMAND, measures)


def _replay(endpoints: Endpoints, demand: float, capacity: float, seed: int) -> list[Measure]:
    """Replay one demand on the predicted count, then on fewer until the SLO is missed."""
    predicted = size(demand, capacity, price=None, safety_factor=1.0).least_instances
    p99: dict[int, list[float]] = {}
    for count in range(predicted, 0, -1):
        p99[count] = []
        # As in a search for the saturation point, an outcome counts once two of three have it.
        while len(p99[count]) < REPLAYS and abs(_balance(p99[count])) < 2:
            order = 10 * seed + len(p99[count])
            p99[count].append(asyncio.run(_p99_ms(endpoints.load(count), demand, order)))
        if _balance(p99[count]) < 0:
            break
    held = [count for count, values in p99.items() if _balance(values) > 0]
    name = f"{demand:.1f} requests/s"
    own = p99[predicted]
    return [
        Measure(f"{name}: predicted", predicted, "instances"),
        of_rounds(f"{name}: p99 on these", own, "ms", at_most(SLO_MS)),
        *(
            Measure(f"{name}: more than the fewest that held", predicted - count, "", at_most(1))
            for count in held[-1:]
        ),
    ]


def _balance(values: Sequence[float]) -> int:
    """Return how many more replays held the SLO than missed it."""
    return sum(1 if value <= SLO_MS else -1 for value in values)


async def _p99_ms(test: LoadTest, rate: float, seed: int) -> float:
    """Return p99 of one replay; where requests failed, or too few were answered, the time limit."""
    seconds = math.ceil(samples_needed(SLO_PERCENTILE) * SURPLUS / rate)
    phase = Phase(name="replay", loop=Loop.open, start=rate, seconds=float(seconds))
    options = replace(test.options, seed=seed)
    runner = Runner(test=replace(test, phases=(phase,), options=options))
    await runner.run()
    p99 = runner.phases[0].latency.percentile(SLO_PERCENTILE)
    return 1000 * options.timeout if p99 is None or runner.phases[0].failed else p99


@contextmanager
def _cloud(context: Context, state: Path) -> Iterator[Clients]:
    state.mkdir(parents=True)
    stand_in = {"python-server": {"command": [sys.executable, "-I", "-S", str(PROGRAM)]}}
    (state / OVERRIDES_FILE).write_text(json.dumps(stand_in), encoding="utf-8")
    address = lifecycle.start(context.paths.code, state)
    try:
        variables = lifecycle.client_environment(address, context.variables, region=REGION)
        settings.adopt_aws(variables)
        yield aws_clients(REGION)
    finally:
        lifecycle.stop(state)


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Endpoints of one model, with several counts of instances."""

    clients: Clients
    texts: Path

    def create_model(self) -> None:
        """Create the model that every endpoint has."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz"):
            pass
        self.clients("s3").create_bucket(Bucket=BUCKET)
        self.clients("s3").put_object(Bucket=BUCKET, Key="m.tar.gz", Body=content.getvalue())
        container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/m.tar.gz"}
        self.clients("sagemaker").create_model(
            ModelName=MODEL, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )

    def load(self, count: int) -> LoadTest:
        """Return a load on an endpoint of so many instances, which is created where it is not."""
        name = f"{MODEL}-{count}"
        sagemaker = self.clients("sagemaker")
        names = [item["EndpointName"] for item in sagemaker.list_endpoints()["Endpoints"]]
        if name not in names:
            variant = {
                "VariantName": "AllTraffic",
                "ModelName": MODEL,
                "InstanceType": "ml.c7i.large",
                "InitialInstanceCount": count,
                "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
            }
            sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
            sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
            self._wait(name)
        runtime = self.clients("sagemaker-runtime").meta.endpoint_url
        url = f"{runtime}/endpoints/{name}/invocations"
        return LoadTest(
            subject=name,
            destination=Destination(url=url, region=REGION),
            inputs=read_inputs(self.texts, rows_per_request=1, binary=False, paired=False),
            slo_ms=SLO_MS,
            phases=(),
            stop=None,
            options=LoadOptions(slo=SLO_MS, warm_up=1.0),
        )

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + LONGEST_START_SECONDS
        while True:
            endpoint = self.clients("sagemaker").describe_endpoint(EndpointName=name)
            status = endpoint["EndpointStatus"]
            if status == "InService":
                return
            if status != "Creating" or time.monotonic() > deadline:
                raise ValueError(f"endpoint {name} is {status}: {endpoint.get('FailureReason')}")
            time.sleep(0.2)
