"""What a change of the files does, against git."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date, timedelta
from functools import partial

import pytest
import yaml

from onboarding.fault import FaultsError
from onboarding.manifest import AccuracyRecord
from roundhouse.gitops.compare import plan_against_git
from roundhouse.gitops.plan_text import headline, image_changes, notes, sections
from roundhouse.processes import Processes
from stacks.images import read_image_files
from tests.fixtures.many_models import lock_entry
from tests.unit.roundhouse.gitops.repository import ROOT

MODEL = "models/model-001.yaml"


def classes(endpoint):
    return {change.id: change.change for change in endpoint.resources}


def test_nothing_changes_where_no_file_does(repository):
    plan = repository.plan()
    (environment,) = plan.environments
    assert (plan.base.ref, plan.base.commit, plan.head.dirty, plan.data_only) == (
        "main",
        plan.head.commit,
        False,
        True,
    )
    assert environment.digests == {} and environment.unchanged_endpoints == 2


def test_scaling_changes_in_place_and_costs_more_at_the_most(repository):
    repository.edit(MODEL, {"endpoint": {"scaling": {"max": 6}}})
    endpoint = repository.only_endpoint()
    assert (endpoint.name, endpoint.kind, endpoint.outage) == ("model-001", "changed", False)
    assert classes(endpoint) == {"Ceiling": "in-place", "ScalableTarget": "in-place"}
    assert endpoint.rollout is None
    price, month = 1.408, 730
    assert (endpoint.cost.before.least, endpoint.cost.after.most) == (
        round(2 * price * month, 2),
        round(6 * price * month, 2),
    )
    assert repository.changes().unchanged_endpoints == 1


def test_new_engine_shows_its_cost_and_no_template_until_it_is_built(repository):
    repository.edit(MODEL, {"accuracy": {"budget": {"mean": 0.995}}, "labels": {"team": "a"}})
    environment = repository.changes()
    (endpoint,), (engine,) = environment.endpoints, environment.engines
    assert (endpoint.kind, endpoint.is_built, endpoint.outage) == ("changed", False, False)
    assert (endpoint.resources, endpoint.rollout, endpoint.permissions.removed) == ((), None, ())
    assert endpoint.cost.before == endpoint.cost.after and environment.digests == {}
    assert (engine.state, engine.before.precision) == ("missing", "int8")
    assert environment.missing == (engine,)
    (note,) = (line for line in notes(environment) if line.startswith("No engine yet: model-001"))
    assert "`roundhouse build --dry-run --env dev` says where, how long" in note
    (prediction,) = engine.predictions
    (measured,) = (
        item
        for item in engine.before.benchmark
        if (item.runtime, item.precision, item.batch) == ("tensorrt", "int8", 8)
    )
    assert (prediction.precision, prediction.shape) == ("int8", "8x64")
    assert prediction.p50_ms == measured.p50_ms and prediction.by.startswith("model-00")
    seconds = measured.p50_ms / 1000 / 8 * 1_000_000
    assert prediction.usd_a_million_rows == pytest.approx(1.408 * seconds / 3600)
    shown = {section.title: section.rows for section in sections(environment)}
    assert shown["Predicted"][0][:2] == ("model-001", "int8 8 x 64")
    assert any("off by" in note for note in notes(environment))


def test_another_gpu_needs_another_engine_and_a_larger_instance_of_the_same_does_not(repository):
    repository.edit(MODEL, {"endpoint": {"instance_type": "ml.g6.xlarge"}})
    (engine,) = repository.changes().engines
    assert (engine.state, engine.compute_capability) == ("missing", "8.9")
    assert engine.predictions == (), "no engine was measured on an L4"
    repository.edit(MODEL, {"endpoint": {"instance_type": "ml.g5.2xlarge"}})
    environment = repository.changes()
    assert environment.engines == ()
    assert environment.endpoints[0].rollout.updates == 2


def test_renamed_model_is_a_new_endpoint_and_the_old_one_is_an_outage(repository):
    (repository.root / MODEL).rename(repository.root / "models/other.yaml")
    repository.edit("models/other.yaml", {"name": "other"})
    environment = repository.changes()
    assert [(item.name, item.kind, item.outage) for item in environment.endpoints] == [
        ("model-001", "gone", True),
        ("other", "new", False),
    ]
    assert "roundhouse-dev-endpoint-model-001" not in environment.digests


def test_new_environment_has_new_stacks_and_endpoints(repository):
    text = (repository.root / "environments/dev.yaml").read_text()
    (repository.root / "environments/prod.yaml").write_text(
        text.replace("name: dev", "name: prod\nlocks: locks/prod")
    )
    plan = repository.plan()
    prod = next(item for item in plan.environments if item.environment == "prod")
    assert [item.kind for item in prod.endpoints] == ["new", "new"]
    assert {stack.name for stack in prod.stacks} == {
        f"roundhouse-prod-{part}" for part in ("foundation", "images", "builds", "observability")
    }
    assert [engine.before for engine in prod.engines] == [None, None]


def test_changed_environment_shows_its_other_stacks(repository):
    repository.edit("environments/dev.yaml", {"builds": {"timeout_minutes": 100}})
    environment = repository.changes()
    assert environment.endpoints == ()
    assert [stack.name for stack in environment.stacks] == ["roundhouse-dev-builds"]


def test_faults_of_the_files_are_reported_and_nothing_else_is(repository):
    repository.edit(MODEL, {"task": "text-embeding"})
    plan = repository.plan()
    assert plan.environments == () and len(plan.faults) == 1 and MODEL in plan.faults[0]


def test_unknown_environment_is_refused(repository):
    with pytest.raises(FaultsError, match="unknown environment"):
        plan_against_git(repository.paths, None, ("devv",), Processes())


def test_old_prices_are_noted_and_those_of_types_not_used_count_for_nothing(repository):
    repository.edit(MODEL, {"endpoint": {"scaling": {"max": 6}}})
    environment = repository.changes()
    read = date.fromisoformat(environment.prices_date)
    assert f"Prices of {read}." in notes(environment, read + timedelta(days=90))
    old = f"Prices of {read} are 91 days old, more than 90: `make prices` reads AWS's list."
    assert old in notes(environment, read + timedelta(days=91))


def test_price_that_is_not_known_stays_unknown(repository):
    repository.edit("environments/dev.yaml", {"region": "eu-west-1"})
    environment = repository.changes()
    assert environment.prices_date is None
    assert {item.cost.unknown for item in environment.endpoints} == {("ml.g5.xlarge",)}
    assert {item.cost.after.least for item in environment.endpoints} == {None}


def test_change_of_code_is_not_data_only(repository):
    (repository.root / "build.py").write_text("")
    assert not repository.plan().data_only


def test_plan_is_of_the_branch_alone_when_main_went_on(repository):
    from tests.unit.roundhouse.gitops.repository import git

    git(repository.root, "checkout", "-q", "-b", "change")
    git(repository.root, "checkout", "-q", "main")
    repository.edit("models/model-002.yaml", {"endpoint": {"scaling": {"max": 9}}})
    repository.commit()
    git(repository.root, "checkout", "-q", "change")
    repository.edit(MODEL, {"endpoint": {"scaling": {"max": 6}}})
    assert repository.only_endpoint().name == "model-001"


def test_built_engine_shows_its_accuracy_beside_the_one_before(repository):
    repository.edit(MODEL, {"accuracy": {"budget": {"mean": 0.995}}})
    record = AccuracyRecord(subject="int8 engine", metric="cosine", mean=0.9966, worst=0.98,
                            mean_interval=(0.996, 0.997), samples=9, budget_mean=0.995,
                            verdict="pass")  # fmt: skip
    replace(repository.models, built=partial(lock_entry, accuracy=(record,))).write_locks()
    shown = {section.title: section.rows for section in sections(repository.changes())}
    words = "mean 0.9966 (0.9960 to 0.9970), worst 0.9800, pass"
    assert ("model-001", "cosine of the int8 engine", "-", words) in shown["Measured"]


def test_new_model_without_an_engine_costs_what_its_file_declares(repository):
    repository.edit(MODEL, {"accuracy": {"budget": {"mean": 0.995}}})
    (repository.root / MODEL).rename(repository.root / "models/model-009.yaml")
    repository.edit("models/model-009.yaml", {"name": "model-009"})
    environment = repository.changes()
    new = next(item for item in environment.endpoints if item.name == "model-009")
    assert (new.kind, new.resources, new.is_built) == ("new", (), False)
    assert (new.cost.before, new.cost.after.least) == (None, round(2 * 1.408 * 730, 2))
    assert new.cost.after.most == round(4 * 1.408 * 730, 2)


def test_engine_that_another_environment_builds_is_received(repository):
    spec = yaml.safe_load((repository.root / "environments/dev.yaml").read_text())
    staging = {**spec, "name": "staging", "account": "444455556666", "promotes_from": "dev"}
    staging["locks"] = "locks/staging"
    (repository.root / "environments/staging.yaml").write_text(yaml.safe_dump(staging))
    repository.commit()
    repository.edit(MODEL, {"accuracy": {"budget": {"mean": 0.995}}})
    dev, received = repository.plan().environments
    assert [engine.built_in for engine in (*dev.missing, *received.missing)] == [None, "dev"]
    assert headline(received).startswith("staging: 1 engine to receive, 1 changed endpoint")


ISOLATED = ("unshare", "--net", "--map-root-user")
SOCKETS_REFUSED = """
import sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(event)

sys.addaudithook(refuse)
"""
PLAN = """
sys.argv = ["roundhouse", "plan", "--env", "dev", "--root", {root!r}, "--format", "json"]
from roundhouse.__main__ import main
main()
"""


def run_isolated(statement):
    program = SOCKETS_REFUSED + statement
    command = (*ISOLATED, sys.executable, "-c", program)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_plan_runs_without_a_network_and_opens_no_socket(repository):
    repository.edit("models/model-001.yaml", {"endpoint": {"scaling": {"max": 6}}})
    result = run_isolated(PLAN.format(root=str(repository.root)))
    assert (result.returncode, result.stderr) == (0, "")
    (environment,) = json.loads(result.stdout)["environments"]
    assert [item["name"] for item in environment["endpoints"]] == ["model-001"]


CODE = "requirements/server.txt"
PIN = "0" * 20
SYNTH = (
    "cdk.json",
    "engine_build/buildspec.yml",
    "engine_build/checkpoint_buildspec.yml",
    "engine_build/checkpoint_signer.py",
    "engine_build/image/buildspec.yml",
    "engine_build/signer.py",
    "engine_build/signing.py",
)


@pytest.fixture
def planned(repository):
    """Plans of `dev` where the repository holds the code of the images too."""
    code = {path for files in read_image_files(ROOT).values() for path in files}
    for path in (*code, *SYNTH):
        (repository.root / path).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / path).write_bytes((ROOT / path).read_bytes())
    repository.commit()
    paths = replace(repository.paths, code=repository.root, build=repository.root / "build")

    def plan():
        (environment,) = plan_against_git(paths, None, (), Processes()).environments
        return environment

    return plan


def change_code(repository):
    file = repository.root / CODE
    file.write_text(file.read_text() + "# another version\n")


def test_code_that_changes_an_image_rolls_its_endpoints(repository, planned):
    assert not planned().digests
    change_code(repository)
    plan = planned()
    assert {item.name for item in plan.endpoints} == {"model-001", "model-002"}
    for item in plan.endpoints:
        ((before, after),) = image_changes(item)
        assert before != after and item.rollout is not None
    (note,) = (line for line in notes(plan) if line.startswith("Another serving image"))
    assert all(f"{item.name}: triton:" in note for item in plan.endpoints)
    repository.commit()
    assert not planned().digests


def test_pinned_image_stays_and_an_exception_takes_the_codes_own(repository, planned):
    pinned = {"triton": {"tag": PIN, "platform": "triton-26.05"}}
    repository.edit("environments/dev.yaml", {"images": {"pinned": pinned}})
    repository.commit()
    change_code(repository)
    assert planned().endpoints == ()
    repository.edit("environments/dev.yaml", {"images": {"except": ["model-001"]}})
    (endpoint,) = planned().endpoints
    ((before, after),) = image_changes(endpoint)
    assert (endpoint.name, before) == ("model-001", f"triton:{PIN}") and after != before
