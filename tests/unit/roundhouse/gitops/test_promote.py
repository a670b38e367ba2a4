"""What one environment tested becomes what the next one deploys, or is refused with reasons."""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from benchmarks.scale.cloud import archive, archived_entry
from onboarding.fault import FaultsError
from onboarding.lock import ServedCapacity, record_capacity
from onboarding.promotion import promotion_path, read_promotion
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import BuildFailedError, DeployFailedError, RoundhouseError
from roundhouse.gitops.promote import promote
from roundhouse.gitops.rollback import roll_back
from roundhouse.processes import Processes
from roundhouse.promoted_tree import environment_paths
from roundhouse.report import Report
from tests.unit.roundhouse.gitops.repository import git

pytestmark = pytest.mark.unit

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MODELS = ("model-001", "model-002")
BUCKETS = {
    "dev": "roundhouse-dev-111122223333-us-east-1",
    "prod": "roundhouse-prod-444455556666-eu-west-1",
}


class S3:
    """Buckets in memory, with the calls that a promotion makes; stops after `calls` copies."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {name: {} for name in BUCKETS.values()}
        self.copies: list[str] = []
        self.calls = 1_000

    def get_object(self, Bucket, Key):
        if Key not in self.buckets[Bucket]:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        content = self.buckets[Bucket][Key]
        return {"Body": type("Body", (), {"iter_chunks": lambda _, size: iter([content])})()}

    def get_paginator(self, _):
        def paginate(Bucket, Prefix):
            items = sorted(self.buckets[Bucket].items())
            yield {
                "Contents": [
                    {"Key": key, "Size": len(content)}
                    for key, content in items
                    if key.startswith(Prefix)
                ]
            }

        return type("Paginator", (), {"paginate": staticmethod(paginate)})()

    def copy(self, source, bucket, key, SourceClient):
        if len(self.copies) >= self.calls:
            raise KeyboardInterrupt
        self.buckets[bucket][key] = SourceClient.buckets[source["Bucket"]][source["Key"]]
        self.copies.append(key)


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
    """`dev`, built, measured and published, and `prod`, which promotes from it."""

    def __init__(self, repository) -> None:
        self.repository, self.root = repository, repository.root
        self.s3, self.alarms = S3(), Alarms()
        dev = (self.root / "environments/dev.yaml").read_text()
        prod = dev.replace("name: dev", "name: prod\nlocks: locks/prod\npromotes_from: dev")
        prod = prod.replace("111122223333", "444455556666").replace("us-east-1", "eu-west-1")
        (self.root / "environments/prod.yaml").write_text(prod)
        repository.models = dataclasses.replace(repository.models, built=archived_entry)
        self.build()

    def build(self, *names):
        """Lock what dev needs, publish it, record a load test of it, and commit."""
        self.repository.models.write_locks(*names)
        for deployment in deployments(read_tree(self.root), "dev"):
            (target,) = deployment.targets
            for name, content in (("model.tar.gz", archive(target)), ("lock-entry.json", b"{}")):
                self.s3.buckets[BUCKETS["dev"]][f"engines/{target.engine_key}/{name}"] = content
            for network in target.network_keys.values():
                self.s3.buckets[BUCKETS["dev"]][f"networks/{network}/model.onnx"] = b"network"
            self.measure(deployment)
        return self.repository.commit()

    def measure(self, deployment, **changes):
        capacity = {
            "requests_per_second": 100.0, "slo_ms": 50.0, "instance_type": "ml.g5.xlarge",
            "server": "triton", "endpoint": "e", "date": "2026-11-20", "tool": "bench", **changes,
        }  # fmt: skip
        folder, (target,) = self.root / "models", deployment.targets
        record_capacity(folder, deployment.name, target.engine_key, ServedCapacity(**capacity))

    def promote(self, source="dev", destination="prod"):
        return promote(
            self.repository.paths,
            Report(console=Console(file=io.StringIO())),
            source=source,
            destination=destination,
            clients_of=lambda _: {"s3": self.s3, "cloudwatch": self.alarms}.__getitem__,
            run=Processes(),
            now=NOW,
        )

    def prod(self):
        """What prod deploys by the files as they are."""
        paths = dataclasses.replace(self.repository.paths, build=self.root.parent / "build")
        own = environment_paths(paths, "prod", Processes())
        return deployments(read_tree(own.tree), "prod")


@pytest.fixture
def rungs(repository):
    return Rungs(repository)


def keys(deployed):
    return [target.engine_key for deployment in deployed for target in deployment.targets]


def test_promotion_copies_by_digest_pins_the_commit_and_holds_the_evidence(rungs):
    commit = git(rungs.root, "rev-parse", "HEAD")
    promoted = rungs.promote()
    source, destination = (rungs.s3.buckets[name] for name in BUCKETS.values())
    assert destination == source and promoted.copied.copied == len(source)
    promotion = read_promotion(rungs.root, "prod")
    assert (promotion.source, promotion.commit) == ("dev", commit)
    assert sorted(promotion.engines.values()) == sorted(keys(rungs.prod()))
    assert set(promotion.engines) == set(MODELS)
    evidence = promotion.evidence["model-001"]
    assert (evidence.endpoint, evidence.requests_per_second) == ("dev-model-001", 100)
    records = [key.endswith("lock-entry.json") for key in rungs.s3.copies if "engines/" in key]
    assert records == [False, True] * 2


def test_second_promotion_does_nothing(rungs):
    first = rungs.promote()
    text = promotion_path(rungs.root, "prod").read_bytes()
    rungs.repository.commit("promotion")
    again = rungs.promote()
    assert (again.copied.copied, again.path, again.promotion) == (0, None, first.promotion)
    assert promotion_path(rungs.root, "prod").read_bytes() == text


@pytest.mark.parametrize("calls", range(0, 7, 2))
def test_promotion_that_was_killed_goes_on(rungs, calls):
    rungs.s3.calls = calls
    if calls < 6:
        with pytest.raises(KeyboardInterrupt):
            rungs.promote()
        assert read_promotion(rungs.root, "prod") is None
    rungs.s3.calls = 1_000
    rungs.promote()
    assert rungs.s3.buckets[BUCKETS["prod"]] == rungs.s3.buckets[BUCKETS["dev"]]
    assert len(rungs.s3.copies) == len(rungs.s3.buckets[BUCKETS["dev"]])


def test_environment_deploys_the_promoted_commit_until_the_promotion_is_reverted(rungs):
    first = keys(rungs.prod())
    rungs.promote()
    rungs.repository.commit("promotion")
    rungs.repository.models.change("model-001", {"accuracy": {"budget": {"mean": 0.95}}})
    rungs.build("model-001")
    assert keys(rungs.prod()) == first != keys(deployments(read_tree(rungs.root), "dev"))
    rungs.promote()
    rungs.repository.commit("second promotion")
    second = keys(rungs.prod())
    assert second == keys(deployments(read_tree(rungs.root), "dev"))
    git(rungs.root, "revert", "--no-edit", "HEAD")
    assert keys(rungs.prod()) == first


def test_rollback_writes_the_promotion_before_or_that_of_a_commit(rungs):
    rungs.promote()
    first = rungs.repository.commit("promotion")
    rungs.repository.models.change("model-001", {"accuracy": {"budget": {"mean": 0.95}}})
    rungs.build("model-001")
    second = rungs.promote().promotion
    rungs.repository.commit("second promotion")
    before = roll_back(rungs.repository.paths, "prod", Processes())
    assert before == read_promotion(rungs.root, "prod") and before.commit != second.commit
    assert git(rungs.root, "diff", "--name-only", first, "--", "promotions") == ""
    rungs.repository.commit("rollback")
    again = roll_back(rungs.repository.paths, "prod", Processes(), second.commit[:7])
    assert again == second


def test_refuses_a_rollback_without_an_earlier_promotion(rungs):
    with pytest.raises(RoundhouseError, match="prod has no promotion"):
        roll_back(rungs.repository.paths, "prod", Processes())
    rungs.promote()
    rungs.repository.commit("promotion")
    with pytest.raises(RoundhouseError, match="git has no earlier promotion of prod here"):
        roll_back(rungs.repository.paths, "prod", Processes())
    with pytest.raises(RoundhouseError, match="git has no promotion of commit abcdef0 of prod"):
        roll_back(rungs.repository.paths, "prod", Processes(), "abcdef0")


def test_plan_of_a_promoted_environment_follows_its_promotion(rungs):
    rungs.promote()
    rungs.repository.commit("promotion")
    rungs.repository.edit("models/model-001.yaml", {"endpoint": {"scaling": {"max": 9}}})
    plans = {item.environment: item for item in rungs.repository.plan().environments}
    assert [item.name for item in plans["dev"].endpoints] == ["model-001"]
    assert not plans["prod"].has_changes


def test_refuses_every_gate_that_is_not_met_at_once(rungs):
    one, two = deployments(read_tree(rungs.root), "dev")
    rungs.measure(one, date="2026-09-01")
    rungs.measure(two, slo_ms=80.0)
    rungs.alarms.history.append(("dev-model-002-latency", NOW.replace(hour=11, minute=30)))
    rungs.repository.commit()
    with pytest.raises(DeployFailedError) as refused:
        rungs.promote()
    lines = str(refused.value).splitlines()
    assert lines[0] == "Refused before anything was copied:"
    assert "model-001: its load test is 82 days old, and gates.capacity_days is 30" in lines[1]
    assert "model-002: its load test held 80 ms, and latency_slo_ms is 50" in lines[2]
    assert "model-002: an alarm rang at 2026-11-22 11:30 UTC" in lines[3]
    assert rungs.s3.copies == [] and read_promotion(rungs.root, "prod") is None


def test_refuses_an_alarm_that_rings(rungs):
    rungs.alarms.ringing.append("dev-model-001-server-errors")
    with pytest.raises(DeployFailedError, match="model-001: an alarm rang"):
        rungs.promote()


def test_refuses_an_endpoint_without_a_load_test_unless_none_is_required(rungs):
    rungs.repository.models.write_locks("model-001")
    rungs.repository.models.change("model-001", {"accuracy": {"budget": {"mean": 0.95}}})
    rungs.repository.commit()
    with pytest.raises(DeployFailedError, match="no load test on"):
        rungs.promote()
    rungs.repository.edit("environments/prod.yaml", {"gates": {"capacity_days": None}})
    rungs.repository.commit()
    with pytest.raises(DeployFailedError, match="is not there, and the lock of model-001 names it"):
        rungs.promote()


def test_refuses_an_archive_of_other_bytes_and_overwrites_nothing(rungs):
    (key, *_) = keys(deployments(read_tree(rungs.root), "dev"))
    rungs.s3.buckets[BUCKETS["prod"]][f"engines/{key}/model.tar.gz"] = b"another build"
    with pytest.raises(DeployFailedError, match="two builds claim one key"):
        rungs.promote()
    assert rungs.s3.buckets[BUCKETS["prod"]][f"engines/{key}/model.tar.gz"] == b"another build"
    assert read_promotion(rungs.root, "prod") is None


def test_refuses_files_that_are_not_committed(rungs):
    rungs.repository.edit("models/model-001.yaml", {"labels": {"team": "a"}})
    with pytest.raises(RoundhouseError, match="not committed as they are"):
        rungs.promote()


def test_refuses_a_commit_that_is_not_merged(rungs):
    git(rungs.root, "checkout", "-q", "-b", "change")
    rungs.repository.commit()
    with pytest.raises(RoundhouseError, match="is not on main; merge it first"):
        rungs.promote()


def test_refuses_an_environment_that_promotes_from_another(rungs):
    with pytest.raises(RoundhouseError, match="promotes from no environment, not from prod"):
        rungs.promote(source="prod", destination="dev")


def test_refuses_to_promote_an_environment_to_itself(rungs):
    with pytest.raises(RoundhouseError, match="an environment does not promote to itself"):
        rungs.promote(source="dev", destination="dev")


@pytest.mark.parametrize("environment", ["prd", ""])
def test_refuses_a_rollback_of_an_unknown_environment(rungs, environment):
    with pytest.raises(FaultsError, match="environment"):
        roll_back(rungs.repository.paths, environment, Processes())


def test_environment_never_builds_what_it_receives(rungs):
    from roundhouse.deploy.builds.engines import missing_engines

    tree = read_tree(rungs.root)
    empty = {"s3": type("Empty", (), {"head_object": _absent})()}
    session = type("Session", (), {})()
    session.environment, session.clients = tree.environments["prod"], empty.__getitem__
    session.deployments, session.is_promoted = lambda: deployments(tree, "prod"), False
    with pytest.raises(BuildFailedError, match="`roundhouse promote --from dev --to prod`"):
        missing_engines(session)


def _absent(_, **__):
    raise ClientError({"Error": {"Code": "404"}}, "HeadObject")
