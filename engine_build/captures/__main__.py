"""`python -m engine_build.captures`: an endpoint's captures of the last hours, compared."""

from __future__ import annotations

import datetime
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from engine_build.captures.bodies import Captured, captured_lines
from engine_build.captures.comparison import compare_captures
from engine_build.captures.report import Report, metric_values
from engine_build.datasets.dataset import samples
from engine_build.errors import BuildError, InputRefused, PublishFailed
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network, Networks
from engine_build.options import Parser
from engine_build.store import FolderStore, Store, store_at
from onboarding import names
from onboarding.deployment import Deployment, Target, Variant
from onboarding.fault import FaultsError
from onboarding.hosting_spec import CAPTURE_TASKS, MOST_CAPTURE_HOURS
from onboarding.resolve import deployments
from onboarding.tree import read_tree

MOST_REQUESTS = 20_000
"""Requests of a window that are read; files are taken in random order until there are as many."""
Publish = Any
"""A client of CloudWatch, or what a test puts in its place."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The hours whose captures are read."""

    end: datetime.datetime
    hours: int

    def prefixes(self) -> Iterator[str]:
        """Yield the folder of each hour that SageMaker captures into, the newest first."""
        for back in range(self.hours + 1):
            yield (self.end - datetime.timedelta(hours=back)).strftime("%Y/%m/%d/%H/")

    @property
    def begin(self) -> datetime.datetime:
        """The beginning of the first hour that is read."""
        first = self.end - datetime.timedelta(hours=self.hours)
        return first.replace(minute=0, second=0, microsecond=0)


def main(
    arguments: Sequence[str],
    stdout: TextIO,
    stderr: TextIO,
    *,
    now: datetime.datetime,
    cloudwatch: Publish = None,
) -> int:
    """Exit with 0 when compared, whatever was found; else as `python -m engine_build` does."""
    try:
        parsed = _parser().parse_args(arguments)
        deployment = _deployment(parsed.root, parsed.environment, parsed.endpoint)
        store = store_at(parsed.store, region=deployment.environment.region)
        window = Window(end=now, hours=parsed.hours)
        reports = [
            _report(parsed.root, deployment, variant, store, window, parsed, Log(stderr))
            for variant in deployment.variants
        ]
        for report in reports:
            _keep(report, deployment, store, parsed, now)
            if parsed.publish:
                client = _cloudwatch(deployment) if cloudwatch is None else cloudwatch
                _publish(client, report)
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    if parsed.format == "json":
        print(json.dumps([report.as_dict() for report in reports]), file=stdout)
    else:
        print("\n".join(report.as_markdown() for report in reports), file=stdout)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="python -m engine_build.captures",
        description="Compares what an endpoint captured with the data and the source model.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("--root", type=Path, default=Path(), help="onboarding root")
    option("--environment", required=True, help="a file of environments/, without .yaml")
    option("--endpoint", required=True, help="the endpoint's name in the tree")
    option("--store", required=True, metavar="ADDRESS", help="s3://BUCKET, or a folder like it")
    option("--out", type=Path, required=True, help="folder of the network and the reports")
    option("--hours", type=_number(1, MOST_CAPTURE_HOURS), default=24, help="hours back from now")
    option("--sample", type=_number(1, 100_000), default=200, help="rows asked of the source model")
    option("--publish", action="store_true", help="publish metrics, and reports to the store")
    option("--format", choices=("text", "json"), default="text")
    return parser


def _number(least: int, most: int) -> Any:
    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if not least <= value <= most:
            raise InputRefused(f"{text!r} is no number from {least} to {most}.")
        return value

    return read


def _deployment(root: Path, environment: str, endpoint: str) -> Deployment:
    """Return an endpoint of the tree. Raises InputRefused."""
    try:
        found = deployments(read_tree(root), environment, (endpoint,))
    except FaultsError as error:
        raise InputRefused(str(error.faults[0])) from error
    (deployment,) = found
    if deployment.endpoint.data_capture is None:
        raise InputRefused(
            f"endpoint {endpoint!r} captures nothing; give it endpoint.data_capture."
        )
    if deployment.multi_model:
        raise InputRefused(
            f"endpoint {endpoint!r} has several models, and a capture does not say which one "
            "answered; give the model an endpoint of its own."
        )
    return deployment


def _report(
    root: Path,
    deployment: Deployment,
    variant: Variant,
    store: Store,
    window: Window,
    parsed: Any,
    log: Log,
) -> Report:
    (target,) = variant.targets
    model, environment = target.model, deployment.environment
    if model.task not in CAPTURE_TASKS:
        raise InputRefused(
            f"captures of task {model.task} are not compared; allowed: {', '.join(CAPTURE_TASKS)}."
        )
    endpoint = names.endpoint_name(environment, deployment.name)
    network = _network(store, parsed.out, target, log)
    calibration = model.engine.calibration
    dataset = model.accuracy.dataset if calibration is None else calibration.dataset
    data = samples(root / dataset, paired=model.task == "text-ranking")
    folder = f"{names.captures_prefix(environment, deployment.name)}/{variant.name}"
    files = [name for hour in window.prefixes() for name in store.names(f"{folder}/{hour}")]
    seed = int(window.end.timestamp())
    captured, read = _read(store, files, seed)
    return Report(
        endpoint=endpoint,
        variant=variant.name,
        model=model.name,
        begin=window.begin.isoformat(timespec="seconds"),
        end=window.end.isoformat(timespec="seconds"),
        dataset=dataset,
        objects=read,
        objects_left=len(files) - read,
        comparison=compare_captures(
            captured, network, model, data.values, sample=parsed.sample, seed=seed
        ),
    )


def _read(store: Store, files: Sequence[str], seed: int) -> tuple[list[Captured | None], int]:
    """Return invocations of files in random order, and how many files they are of."""
    captured: list[Captured | None] = []
    order, read = list(files), 0
    random.Random(seed).shuffle(order)
    for name in order:
        if len(captured) >= MOST_REQUESTS:
            break
        captured += captured_lines((store.read(name) or b"").decode(errors="replace"))
        read += 1
    return captured, read


def _network(store: Store, folder: Path, target: Target, log: Log) -> Network:
    """Return the float network as the build kept it. Raises InputRefused."""
    key = target.network_keys["float"]
    work = FolderStore(folder / "store")
    network = Networks((work, store), folder / "networks", log).find("float", key)
    if network is None:
        raise InputRefused(
            f"network {key} of {target.model.name} is not in {store.place}; build the model in "
            "this environment, or copy networks/ of the one that built it."
        )
    return network


def _keep(
    report: Report, deployment: Deployment, store: Store, parsed: Any, now: datetime.datetime
) -> None:
    """Write the report beside the network and, where it is published, into the store."""
    texts: Mapping[str, str] = {
        "json": json.dumps(report.as_dict(), indent=2) + "\n",
        "md": report.as_markdown(),
    }
    for suffix, text in texts.items():
        moment = now.strftime("%Y-%m-%dT%H%M%SZ")
        name = names.capture_report_path(
            deployment.environment, deployment.name, report.variant, f"{moment}.{suffix}"
        )
        path = parsed.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if parsed.publish:
            store.upload(path, name)


def _cloudwatch(deployment: Deployment) -> Any:
    import boto3

    return boto3.client("cloudwatch", region_name=deployment.environment.region)


def _publish(cloudwatch: Publish, report: Report) -> None:
    """Publish a report's metrics. Raises PublishFailed."""
    from botocore.exceptions import BotoCoreError, ClientError

    dimensions = {"EndpointName": report.endpoint, "VariantName": report.variant}
    data = [
        {
            "MetricName": name,
            "Value": value,
            "Unit": "Count" if name == names.CAPTURE_ROWS else "None",
            "Dimensions": [{"Name": key, "Value": item} for key, item in dimensions.items()],
        }
        for name, value in metric_values(report.comparison).items()
    ]
    try:
        cloudwatch.put_metric_data(Namespace=names.CAPTURE_NAMESPACE, MetricData=data)
    except (BotoCoreError, ClientError) as error:
        raise PublishFailed(f"CloudWatch takes no metric of the captures ({error}).") from error


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr, now=datetime.datetime.now(datetime.UTC)))
