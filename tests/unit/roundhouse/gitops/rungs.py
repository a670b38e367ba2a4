"""Two environments of one repository: `dev`, which builds, and `prod`, which receives."""

from __future__ import annotations

import copy
import dataclasses
import io
from datetime import UTC, datetime

from rich.console import Console

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.aws.clients import COPIES
from roundhouse.gitops.promote import prepare_promotion
from roundhouse.processes import Processes
from roundhouse.promoted_tree import environment_paths
from roundhouse.report import Report
from tests.fixtures.unbuilt_archives import archive, archived_entry
from tests.unit.roundhouse.gitops.promoted import promote
from tests.unit.roundhouse.gitops.repository import BUDGET
from tests.unit.roundhouse.memory_s3 import MemoryS3

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MODELS = ("model-001", "model-002")
BUCKETS = {
    "dev": "roundhouse-dev-111122223333-us-east-1",
    "prod": "roundhouse-prod-444455556666-eu-west-1",
}


class WithoutCopies:
    """S3 for every call but copies, which a client of their own makes."""

    def __init__(self, s3: S3) -> None:
        self._s3 = s3

    def __getattr__(self, name: str):
        assert name != "copy_object", name
        return getattr(self._s3, name)


class S3(MemoryS3):
    """Buckets in memory, with the calls that a promotion makes."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {name: {} for name in BUCKETS.values()}
        self.copies: list[str] = []

    def bucket(self, name):
        return self.buckets[name]

    def copy_object(self, *, Bucket, Key, CopySource, IfNoneMatch, CopySourceIfMatch=None, **_):
        assert IfNoneMatch == "*" and Key not in self.buckets[Bucket]
        assert CopySourceIfMatch in (None, self.head_object(**CopySource)["ETag"])
        self.buckets[Bucket][Key] = self.buckets[CopySource["Bucket"]][CopySource["Key"]]
        self.copies.append(Key)


class Alarms:
    """Alarms of every endpoint: those that ring, and when others did."""

    def __init__(self) -> None:
        self.ringing: list[str] = []
        self.history: list[tuple[str, datetime]] = []

    def get_paginator(self, operation):
        def paginate(**given):
            if operation == "describe_alarms":
                prefix = given["AlarmNamePrefix"]
                names = [name for name in self.ringing if name.startswith(prefix)]
                yield {"MetricAlarms": [{"AlarmName": name} for name in names]}
                return
            summary = "Alarm updated from OK to ALARM"
            yield {
                "AlarmHistoryItems": [
                    {"AlarmName": name, "Timestamp": moment, "HistorySummary": summary}
                    for name, moment in self.history
                    if given["StartDate"] <= moment <= given["EndDate"]
                ]
            }

        return type("Paginator", (), {"paginate": staticmethod(paginate)})()


class Rungs:
    """`dev`, built and published, and `prod`, which promotes from it."""

    def __init__(self, repository) -> None:
        self.repository, self.root = repository, repository.root
        self.s3, self.alarms = S3(), Alarms()
        dev = (self.root / "environments/dev.yaml").read_text()
        prod = dev.replace("name: dev", "name: prod\nlocks: locks/prod\npromotes_from: dev")
        prod = prod.replace("111122223333", "444455556666").replace("us-east-1", "eu-west-1")
        (self.root / "environments/prod.yaml").write_text(prod)
        repository.models = dataclasses.replace(repository.models, built=archived_entry)
        self.build()

    def copy(self, folder):
        """The same two environments in another folder, and their buckets."""
        found = copy.copy(self)
        found.repository = self.repository.copy(folder)
        found.root, found.s3, found.alarms = folder, S3(), Alarms()
        found.s3.buckets = {name: dict(bucket) for name, bucket in self.s3.buckets.items()}
        return found

    def build(self, *names):
        """Lock what dev needs, publish it, and commit."""
        self.repository.models.write_locks(*names)
        stored = self.s3.buckets[BUCKETS["dev"]]
        for deployment in deployments(read_tree(self.root), "dev"):
            for target in deployment.targets:
                stored[f"engines/{target.engine_key}/model.tar.gz"] = archive(target)
                stored[f"engines/{target.engine_key}/lock-entry.json"] = b"{}"
                for network in target.network_keys.values():
                    stored[f"networks/{network}/model.onnx"] = b"network"
        return self.repository.commit()

    def promote(self, *models, source="dev", destination="prod"):
        return promote(self.paths, self.report, **self._options(source, destination, models))

    def promote_and_change(self):
        """Promote and commit both models, then change and build both."""
        self.promote()
        self.repository.commit("promotion")
        for model in MODELS:
            self.repository.models.change(model, BUDGET)
        self.build()

    def prepare(self, *models):
        """The promotion, its engines copied, and no file written."""
        return prepare_promotion(self.paths, self.report, **self._options("dev", "prod", models))

    def _options(self, source, destination, models):
        return {
            "source": source,
            "destination": destination,
            "clients_of": lambda _: (
                {
                    "s3": WithoutCopies(self.s3),
                    COPIES: self.s3,
                    "cloudwatch": self.alarms,
                }.__getitem__
            ),
            "run": Processes(),
            "models": models,
            "now": NOW,
            "assume": self._assume,
        }

    def _assume(self, clients, role, region, what):
        self.assumed = (role, region)
        return clients

    @property
    def report(self):
        return Report(console=Console(file=io.StringIO()))

    @property
    def paths(self):
        return dataclasses.replace(self.repository.paths, build=self.root.parent / "build")

    def prod(self):
        """What prod deploys by the files as they are."""
        own = environment_paths(self.paths, "prod", Processes())
        return deployments(read_tree(own.tree), "prod")


def keys(deployed):
    return [target.engine_key for deployment in deployed for target in deployment.targets]
