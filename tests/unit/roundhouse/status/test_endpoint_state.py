"""What `roundhouse status` says of endpoints with no cloud up, or an account that it cannot ask."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from rich.console import Console

from onboarding.hosting_spec import AsynchronousSpec, ScheduledFloorSpec
from onboarding.lock import LockEntry, write_lock_entry
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.aws.clients import calling
from roundhouse.cli import app as cli
from roundhouse.cli.options import Format
from roundhouse.cli.status import status
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.status import state
from roundhouse.status.endpoints import Cost, endpoint_state
from roundhouse.status.state import UNKNOWN, Looking, state_of
from roundhouse.status.table import endpoint_lines, endpoints_table, unknown_lines
from stacks.scaling.counts import scaled_counts
from tests.synth.deployments import (
    of_targets,
    one,
    unlocked,
    with_endpoint,
    with_fields,
    with_locks,
    with_scaling,
)
from tests.synth.scaled import with_own_pools, with_served, with_variant
from tests.unit.roundhouse.engines import copied_tree, entry_for

pytestmark = pytest.mark.unit


def embedder():
    return one("dev", "sentence-embedder")


def own(deployment):
    return endpoint_state(deployment).variants[0]


def table_text(*deployments):
    states = [endpoint_state(deployment) for deployment in deployments]
    text = io.StringIO()
    Console(file=text, width=220).print(endpoints_table(states))
    return text.getvalue() + "\n".join(endpoint_lines(states))


def test_variant_shows_what_its_stack_scales_on():
    state = own(embedder())
    (count,) = scaled_counts(embedder())
    for policy, target in zip(
        count.tracking, (state.invocations_target, state.gpu_target), strict=True
    ):
        assert target is not None and target.value == policy.value
        assert target.derivation == policy.derivation
    assert (state.fewest, state.most, state.instance_types) == (1, 4, ("ml.g5.xlarge",))


def floors():
    floor = ScheduledFloorSpec(schedule="cron(0 7 * * ? *)", min=3, max=9, timezone="Europe/Berlin")
    return with_scaling(embedder(), schedule=(floor,))


def on_cpu():
    return with_scaling(one("local", "sentence-embedder"), max=3, cpu_utilization_percent=70)


def queue():
    return with_scaling(with_endpoint(embedder(), asynchronous=AsynchronousSpec()), min=0)


def shadow():
    return with_variant(embedder(), "copy", role="shadow")


def unbuilt():
    return next(item for item in unlocked("dev") if item.name == "sentence-embedder")


def shared_endpoint(mib):
    return with_locks(one("dev", "text-shared"), device_memory_mib=mib)


@pytest.mark.parametrize(
    ("deployment", "texts"),
    [
        (embedder, ["1 to 4 x ml.g5.xlarge", "400 requests/s", "12000 invocations/min",
                    "70 % GPU", "1.41 to 5.63",
                    "x 60 s x safety factor 0.5 = 12000 invocations a minute"]),
        (lambda: with_own_pools(embedder(), "ml.g5.xlarge", "ml.g5.16xlarge"), ["unknown"]),
        (lambda: with_own_pools(embedder(), "ml.g5.2xlarge", "ml.g5.xlarge"),
         ["ml.g5.2xlarge, else ml.g5.xlarge"]),
        (on_cpu, ["140 % CPU"]),
        (shadow, ["copy (shadow)"]),
        (queue, ["12000 waiting"]),
        (lambda: with_scaling(embedder(), min=2, max=2),
         ["2 x ml.g5.xlarge", "fixed", "capacity: sentence-embedder: 400 rows/s measured"]),
        (lambda: with_served(embedder(), 310.0), ["310 requests/s served (roundhouse bench"]),
        (lambda: with_served(embedder(), 46160.74),
         ["46160.7 requests/s", "1384822.2 invocations/min", "46160.74 requests/s served"]),
        (unbuilt, ["unknown", "model 'sentence-embedder' is not built"]),
        (lambda: shared_endpoint(15000.0), ["22528 MiB of GPU memory for models, 30000 taken",
                                   "at least 1 evicted at any time", "endpoint: text-shared-2"]),
        (lambda: shared_endpoint(500.0), ["all fit"]),
        (lambda: shared_endpoint(30000.0), ["Model 'sentence-embedder-fp32' takes 30000 MiB"]),
        (lambda: shared_endpoint(None),
         ["the GPU memory of model 'sentence-embedder-fp32' is not measured"]),
        (lambda: with_fields(embedder(), name="[red]"), ["[red]"]),
    ],
)  # fmt: skip
def test_table_and_lines_show_what_is_known_and_what_is_not(deployment, texts):
    text = table_text(deployment())
    assert [words for words in texts if words not in text] == []


@pytest.mark.parametrize(
    ("deployment", "least", "most"),
    [
        (embedder, 1.4084, 4 * 1.4084),
        (lambda: with_own_pools(embedder(), "ml.g5.xlarge", "ml.g5.16xlarge"), None, None),
        (lambda: with_own_pools(embedder(), "ml.g5.2xlarge", "ml.g5.xlarge"), 1.4084, 4 * 1.515),
        (floors, 1.4084, 9 * 1.4084),
        (queue, 0.0, 4 * 1.4084),
    ],
)
def test_cost_is_of_the_cheapest_and_the_dearest_type_times_the_counts(deployment, least, most):
    assert own(deployment()).usd_per_hour == Cost(
        least=least, most=None if most is None else round(most, 4)
    )


def test_schedule_moves_bounds():
    state = own(floors())
    assert (state.fewest, state.most) == (1, 9)
    assert state.schedule == ("cron(0 7 * * ? *) Europe/Berlin: from 3 to 9",)


@pytest.mark.parametrize(
    ("deployment", "variant", "invocations", "gpu", "cpu", "backlog"),
    [
        (on_cpu, 0, ..., None, 140, None),
        (lambda: with_scaling(on_cpu(), max=1), 0, None, None, None, None),
        (shadow, 1, None, None, None, None),
        (queue, 0, None, None, None, 12000),
    ],
)
def test_targets_are_those_of_the_policies(deployment, variant, invocations, gpu, cpu, backlog):
    state = endpoint_state(deployment()).variants[variant]
    for target, value in (
        (state.invocations_target, invocations), (state.gpu_target, gpu),
        (state.cpu_target, cpu), (state.backlog_target, backlog),
    ):  # fmt: skip
        assert value is ... or (None if target is None else target.value) == value


def test_shadow_keeps_its_count():
    state = endpoint_state(shadow()).variants[1]
    assert (state.fewest, state.most) == (1, 1)


def test_memory_plan_says_what_fits_and_what_a_round_takes():
    (memory,) = endpoint_state(shared_endpoint(15000.0)).memory
    assert (memory.fits, memory.evicted, memory.round_seconds) == (False, 1, 5.0)
    assert memory.available_mib == 22528
    assert "text-shared-2" not in table_text(shared_endpoint(30000.0)), "no change makes it fit"
    deployment = shared_endpoint(500.0)
    assert endpoint_state(of_targets(deployment, deployment.own.targets[:1])).memory[0].fits


def locked_tree(root, environment="dev", **manifest):
    tree = copied_tree(root)
    for deployment in deployments(read_tree(tree), environment):
        for target in deployment.targets:
            entry: LockEntry = entry_for(deployment, target, **manifest)
            write_lock_entry(tree / deployment.environment.locks, target.model.name, entry)
    return tree


def test_state_is_json_with_endpoints_and_no_cloud(tmp_path):
    tree = locked_tree(tmp_path, environment="local", host_memory_mib=300.0)
    paths = Paths(code=tree, tree=tree, build=tree / "build")
    state = state_of(paths, Report(console=Console(quiet=True)), "local")
    document = json.loads(json.dumps(state.as_dict(), allow_nan=False))
    assert state.cloud is None
    (own_endpoint, shared_endpoint) = document["endpoints"]
    assert own_endpoint["memory"] == [] and own_endpoint["variants"][0]["usd_per_hour"] == {
        "least": None,
        "most": None,
    }
    assert shared_endpoint["memory"][0]["models"] == {
        "sentence-embedder-fp32": 300.0,
        "sentence-embedder-int8": 300.0,
    }


def test_check_refuses_a_set_that_cannot_work_and_notes_one_that_costs(
    tmp_path, capsys, monkeypatch
):
    def check(root, *words):
        monkeypatch.setattr("sys.argv", ["roundhouse", "check", "--root", str(root), *words])
        return cli.exit_code(), *capsys.readouterr()

    code, out, _ = check(
        locked_tree(tmp_path / "large", device_memory_mib=30000.0), "--format", "json"
    )
    faults = json.loads(out)
    assert code == 1 and {fault["file"] for fault in faults} == {
        "endpoints/text-shared.yaml",
        "models/sentence-embedder.yaml",
    }
    assert all(fault["line"] for fault in faults)
    code, out, _ = check(locked_tree(tmp_path / "tight", device_memory_mib=15000.0))
    assert (
        code == 0
        and "no fault" in out
        and "Note: dev: Endpoint 'text-shared' on ml.g5.xlarge: its 2 models take 30000" in out
    )


def test_state_fields_are_plain_values():
    assert json.dumps(dataclasses.asdict(endpoint_state(shared_endpoint(15000.0))), allow_nan=False)


DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "No."}}, "HeadObject")
AWAY = EndpointConnectionError(endpoint_url="https://s3.us-east-1.amazonaws.com")


class Account:
    """Fails at every question, and counts them."""

    def __init__(self, failure):
        self.failure, self.calls = failure, 0

    def __call__(self, service):
        with calling(f"AWS {service}"):
            return self

    def look(self, clients):
        self.calls += 1
        with calling("Endpoint a"):
            raise self.failure


@pytest.mark.parametrize(
    ("failure", "calls", "reason"),
    [(AWAY, 1, "EndpointConnectionError"), (NoCredentialsError(), 1, "NoCredentialsError")],
)
def test_an_account_that_is_out_of_reach_is_called_once(failure, calls, reason):
    account = Account(failure)
    looking = Looking(clients=account)
    assert [looking.find("archive", account.look) for _ in range(3)] == [None] * 3
    assert account.calls == calls and [gap.reason for gap in looking.unknown.values()] == [reason]


def test_an_engine_that_may_not_be_read_hides_no_other():
    account = Account(DENIED)
    looking = Looking(clients=account)
    assert looking.find("archive", account.look) is None
    assert looking.find("archive", lambda clients: "in S3") == "in S3"
    (why,) = looking.unknown.values()
    assert (why.column, why.reason) == (
        "archive",
        "AccessDenied",
    ) and "credentials of the environment's account" in why.sentence


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_status_without_credentials_says_why_in_one_line_and_in_json(
    no_credentials, tmp_path, capsys
):
    tree = copied_tree(tmp_path / "tree")
    status("dev", root=tree)
    lines = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("Unknown, because")
    ]
    assert len(lines) == 1 and "no AWS credentials were found; set AWS_PROFILE" in lines[0]
    status("dev", root=tree, form=Format.json)
    found = json.loads(capsys.readouterr().out)
    assert [(gap["column"], gap["reason"]) for gap in found["unknown"]] == [
        ("archive", "NoCredentialsError"),
        ("endpoint_status", "NoCredentialsError"),
        ("stacks", "NoCredentialsError"),
    ]
    assert {engine["archive"] for engine in found["engines"]} == {UNKNOWN}


def test_status_does_not_fail_over_a_profile_that_is_not_there(
    no_credentials, monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("AWS_PROFILE", "nope")
    status("dev", root=copied_tree(tmp_path / "tree"), form=Format.json)
    assert {gap["reason"] for gap in json.loads(capsys.readouterr().out)["unknown"]} == {
        "ProfileNotFound"
    }


def test_nothing_unknown_prints_nothing():
    known = state.State(environment="dev", cloud=None, unknown=(), engines=(), endpoints=())
    assert list(unknown_lines(known)) == []
