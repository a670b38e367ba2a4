"""What one environment tested becomes what the next one deploys, or is refused with reasons."""

from __future__ import annotations

import pytest

from onboarding.lock import read_lock, write_lock_entry
from onboarding.manifest import AccuracyRecord
from onboarding.promotion import promotion_path, read_promotion
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import BuildFailedError, DeployFailedError, RoundhouseError
from roundhouse.gitops.promote import promotion_markdown
from roundhouse.paths import find_paths
from tests.unit.roundhouse.gitops.repository import BUDGET, ROOT, git
from tests.unit.roundhouse.gitops.rungs import BUCKETS, MODELS, NOW, keys
from tests.unit.roundhouse.memory_s3 import MemoryS3


def test_promotion_copies_by_digest_and_pins_the_commit(rungs):
    commit = git(rungs.root, "rev-parse", "HEAD")
    promoted = rungs.promote()
    source, destination = (rungs.s3.buckets[name] for name in BUCKETS.values())
    assert destination == source and promoted.copied.copied == len(source)
    promotion = read_promotion(rungs.root, "prod")
    assert (promotion.source, promotion.commit) == ("dev", commit)
    assert sorted(promotion.engines.values()) == sorted(keys(rungs.prod()))
    assert set(promotion.engines) == set(MODELS)
    (line,) = promotion_markdown(promotion).splitlines()
    assert line.startswith(f"`prod` deploys commit {commit[:12]}, engines by digest from `dev`")
    records = [key.endswith("lock-entry.json") for key in rungs.s3.copies if "engines/" in key]
    assert records == [False, True] * 2


@pytest.mark.parametrize("committed", [False, True])
def test_second_promotion_does_nothing(rungs, committed):
    first = rungs.promote()
    text = promotion_path(rungs.root, "prod").read_bytes()
    if committed:
        rungs.repository.commit("promotion")
    again = rungs.promote()
    assert (again.copied.copied, again.path, again.promotion) == (0, None, first.promotion)
    assert promotion_path(rungs.root, "prod").read_bytes() == text


def test_environment_deploys_the_promoted_commit_until_the_promotion_is_reverted(rungs):
    first = keys(rungs.prod())
    rungs.promote()
    rungs.repository.commit("promotion")
    rungs.repository.models.change("model-001", BUDGET)
    rungs.build("model-001")
    assert keys(rungs.prod()) == first != keys(deployments(read_tree(rungs.root), "dev"))
    rungs.promote()
    rungs.repository.commit("second promotion")
    second = keys(rungs.prod())
    assert second == keys(deployments(read_tree(rungs.root), "dev"))
    git(rungs.root, "revert", "--no-edit", "HEAD")
    assert keys(rungs.prod()) == first


def test_plan_of_a_promoted_environment_follows_its_promotion(rungs):
    rungs.promote()
    rungs.repository.commit("promotion")
    rungs.repository.edit("models/model-001.yaml", {"endpoint": {"scaling": {"max": 9}}})
    plans = {item.environment: item for item in rungs.repository.plan().environments}
    assert [item.name for item in plans["dev"].endpoints] == ["model-001"]
    assert not plans["prod"].digests


def test_refuses_every_gate_that_is_not_met_at_once(rungs):
    locks, (one, _) = rungs.root / "models", deployments(read_tree(rungs.root), "dev")
    (entry,) = read_lock(locks, "model-001").engines.values()
    record = AccuracyRecord(subject="int8 engine", metric="cosine", mean=0.9, worst=0.5, samples=9,
                            budget_mean=0.99, verdict="fail")  # fmt: skip
    manifest = entry.manifest.model_copy(update={"accuracy": (record,)})
    write_lock_entry(locks, one.name, entry.model_copy(update={"manifest": manifest}))
    rungs.alarms.history.append(("dev-model-002-latency", NOW.replace(hour=11, minute=30)))
    rungs.repository.commit()
    with pytest.raises(DeployFailedError) as refused:
        rungs.promote()
    lines = str(refused.value).splitlines()
    assert lines == [
        "Refused before anything was copied:",
        "  model-001: its int8 engine is below the accuracy budget; build it again.",
        "  model-002: an alarm rang at 2026-11-22 11:30 UTC, within the last 60 minutes "
        "(gates.quiet_minutes); find the cause, or wait.",
    ]
    assert rungs.s3.copies == [] and read_promotion(rungs.root, "prod") is None


def test_alarms_of_another_account_are_read_by_its_gate_role(rungs):
    rungs.promote()
    role = "arn:aws:iam::111122223333:role/roundhouse-dev-gate"
    assert rungs.assumed == (role, "us-east-1")


def test_no_role_is_assumed_where_no_quiet_time_is_required(rungs):
    rungs.repository.edit("environments/prod.yaml", {"gates": {"quiet_minutes": 0}})
    rungs.repository.commit()
    rungs.alarms.ringing.append("dev-model-001-server-errors")
    assert rungs.promote().path is not None and not hasattr(rungs, "assumed")


def test_refuses_an_alarm_that_rings_but_for_a_start_from_zero_or_another_endpoints(rungs):
    rungs.alarms.ringing += ["dev-model-001-from-zero", "dev-model-001-fr-server-errors"]
    moment = NOW.replace(hour=11, minute=30)
    rungs.alarms.history += [(name, moment) for name in rungs.alarms.ringing]
    assert rungs.promote().path is not None
    rungs.alarms.ringing.append("dev-model-001-server-errors")
    with pytest.raises(DeployFailedError, match="model-001: an alarm rang"):
        rungs.promote()


def test_refuses_an_engine_that_is_not_there_or_not_built(rungs):
    rungs.repository.models.write_locks("model-001")
    rungs.repository.models.change("model-001", BUDGET)
    rungs.repository.commit()
    with pytest.raises(DeployFailedError, match="is not there, and the lock of model-001 names it"):
        rungs.promote()
    rungs.repository.edit("models/model-001.yaml", {"accuracy": {"budget": {"mean": 0.999}}})
    rungs.repository.commit()
    with pytest.raises(DeployFailedError, match=r"model-001: no lock of dev has \w+; `round"):
        rungs.promote()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("model.tar.gz", "two builds claim one key"),
        (
            "lock-entry.json",
            "has 7 bytes, and 2 are wanted; two builds claim one key",
        ),
    ],
)
def test_refuses_an_object_that_is_another_there_and_overwrites_nothing(rungs, file, says):
    (key, *_) = keys(deployments(read_tree(rungs.root), "dev"))
    path, stored = f"engines/{key}/{file}", rungs.s3.buckets[BUCKETS["prod"]]
    stored[path] = b"another"
    with pytest.raises(DeployFailedError, match=says):
        rungs.promote()
    assert stored[path] == b"another" and read_promotion(rungs.root, "prod") is None


def test_refuses_an_engine_that_nobody_tested(rungs):
    locks = rungs.root / "models"
    (entry,) = read_lock(locks, "model-001").engines.values()
    override = {"models": {"model-001": {"endpoint": {"instance_type": "ml.g6.xlarge"}}}}
    rungs.repository.edit("environments/dev.yaml", override)
    rungs.build("model-001")
    write_lock_entry(locks, "model-001", entry)
    rungs.repository.commit()
    with pytest.raises(DeployFailedError) as refused:
        rungs.promote()
    (_, line) = str(refused.value).splitlines()
    assert line == (
        f"  model-001: dev does not serve engine {entry.manifest.engine_key}, which prod needs, so "
        "nobody tested it there; give both the same instance types."
    )


def uncommitted(rungs):
    rungs.repository.edit("models/model-001.yaml", {"labels": {"team": "a"}})


def unmerged(rungs):
    git(rungs.root, "checkout", "-q", "-b", "change")
    rungs.repository.commit()


@pytest.mark.parametrize(
    ("change", "pair", "message"),
    [
        (uncommitted, ("dev", "prod"), "not committed as they are"),
        (unmerged, ("dev", "prod"), "is not on main; merge it first"),
        (None, ("prod", "dev"), "promotes from no environment, not from prod"),
        (None, ("dev", "dev"), "an environment does not promote to itself"),
    ],
)
def test_refuses_before_the_gates(rungs, change, pair, message):
    if change is not None:
        change(rungs)
    with pytest.raises(RoundhouseError, match=message):
        rungs.promote(source=pair[0], destination=pair[1])


def test_environment_never_builds_what_it_receives(rungs):
    from roundhouse.deploy.builds.engines import missing_engines

    tree = read_tree(rungs.root)
    empty = {"s3": MemoryS3()}
    session = type("Session", (), {})()
    session.paths = find_paths(ROOT, rungs.root)
    session.environment, session.clients = tree.environments["prod"], empty.__getitem__
    session.deployments, session.is_promoted = lambda: deployments(tree, "prod"), False
    with pytest.raises(BuildFailedError, match="`roundhouse promote --from dev --to prod`"):
        missing_engines(session)
