"""What `roundhouse status` says of endpoints, with no cloud up."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console

from onboarding.hosting_spec import AsynchronousSpec, ScheduledFloorSpec
from onboarding.lock import LockEntry, write_lock_entry
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.cli import app as cli
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.status.endpoints import Cost, endpoint_state
from roundhouse.status.state import state_of
from roundhouse.status.table import endpoint_lines, endpoints_table
from stacks.scaling.resources import scaling_resources
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
    resources = scaling_resources(embedder())
    for policy, target in (
        ("InvocationsPolicy", state.invocations_target),
        ("GpuPolicy", state.gpu_target),
    ):
        configuration = resources[policy]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
        assert target is not None and target.value == configuration["TargetValue"]
        assert target.derivation == resources[policy]["Metadata"]["Derivation"]["TargetValue"]
    assert (state.fewest, state.most, state.instance_types) == (1, 4, ("ml.g5.xlarge",))


def test_table_shows_count_capacity_targets_and_cost():
    text = table_text(embedder())
    for cell in (
        "1 to 4 x ml.g5.xlarge",
        "400 requests/s",
        "12000 invocations/min",
        "70 % GPU",
        "1.41 to 5.63",
    ):
        assert cell in text
    assert "x 60 s x safety factor 0.5 = 12000 invocations a minute" in text


def test_cost_is_the_price_times_the_count():
    price = 1.4084
    assert own(embedder()).usd_per_hour == Cost(least=price, most=4 * price)


def test_cost_is_unknown_where_a_price_is():
    pools = with_own_pools(embedder(), "ml.g5.xlarge", "ml.g5.16xlarge")
    assert own(pools).usd_per_hour == Cost(least=None, most=None)
    assert "unknown" in table_text(pools)


def test_cost_of_several_types_is_between_the_cheapest_and_the_dearest():
    pools = with_own_pools(embedder(), "ml.g5.2xlarge", "ml.g5.xlarge")
    assert own(pools).usd_per_hour == Cost(least=1.4084, most=round(4 * 1.515, 4))
    assert "ml.g5.2xlarge, else ml.g5.xlarge" in table_text(pools)


def test_schedule_moves_bounds_and_cost():
    floors = (
        ScheduledFloorSpec(schedule="cron(0 7 * * ? *)", min=3, max=9, timezone="Europe/Berlin"),
    )
    state = own(with_scaling(embedder(), schedule=floors))
    assert (state.fewest, state.most) == (1, 9)
    assert state.usd_per_hour.most == round(9 * 1.4084, 4)
    assert state.schedule == ("cron(0 7 * * ? *) Europe/Berlin: from 3 to 9",)


def test_cpu_target_is_that_of_the_policy():
    local = with_scaling(one("local", "sentence-embedder"), max=3, cpu_utilization_percent=70)
    target = own(local).cpu_target
    assert target is not None and target.value == 140
    assert "140 % CPU" in table_text(local)
    assert own(with_scaling(local, max=1)).cpu_target is None


def test_shadow_keeps_its_count_and_scales_on_nothing():
    state = endpoint_state(with_variant(embedder(), "copy", role="shadow")).variants[1]
    assert (state.fewest, state.most) == (1, 1)
    assert (state.invocations_target, state.gpu_target) == (None, None)
    assert "copy (shadow)" in table_text(with_variant(embedder(), "copy", role="shadow"))


def test_asynchronous_endpoint_shows_its_queue():
    waiting = with_scaling(with_endpoint(embedder(), asynchronous=AsynchronousSpec()), min=0)
    state = own(waiting)
    assert state.backlog_target is not None and state.backlog_target.value == 12000
    assert (state.invocations_target, state.gpu_target, state.usd_per_hour.least) == (
        None,
        None,
        0.0,
    )
    assert "12000 waiting" in table_text(waiting)


def test_fixed_count_shows_its_capacity_and_no_target():
    text = table_text(with_scaling(embedder(), min=2, max=2))
    assert (
        "2 x ml.g5.xlarge" in text
        and "fixed" in text
        and "capacity: sentence-embedder: 400 rows/s measured" in text
    )


def test_served_capacity_and_where_it_came_from_are_shown():
    assert "310 requests/s served (roundhouse bench" in table_text(with_served(embedder(), 310.0))


def test_large_numbers_are_written_out():
    text = table_text(with_served(embedder(), 46160.74))
    assert (
        "46160.7 requests/s" in text
        and "1384822.2 invocations/min" in text
        and "46160.74 requests/s served" in text
    )


def test_unbuilt_endpoint_says_so():
    text = table_text(
        next(deployment for deployment in unlocked("dev") if deployment.name == "sentence-embedder")
    )
    assert "unknown" in text and "model 'sentence-embedder' is not built" in text


def shared_deployment(mib):
    deployment = one("dev", "text-shared")
    return with_locks(deployment, device_memory_mib=mib)


def test_memory_plan_and_its_change_are_shown():
    (memory,) = endpoint_state(shared_deployment(15000.0)).memory
    assert (memory.fits, memory.evicted, memory.round_seconds) == (False, 1, 5.0)
    assert memory.available_mib == 22528
    text = table_text(shared_deployment(15000.0))
    assert (
        "22528 MiB of GPU memory for models, 30000 taken" in text
        and "at least 1 evicted at any time" in text
    )
    assert "endpoint: text-shared-2" in text
    assert "all fit" in table_text(shared_deployment(500.0))


def test_model_that_fits_nowhere_is_shown_and_no_change_is_proposed():
    text = table_text(shared_deployment(30000.0))
    assert "Model 'sentence-embedder-fp32' takes 30000 MiB" in text and "text-shared-2" not in text


def test_memory_of_unmeasured_models_is_shown():
    assert "the GPU memory of model 'sentence-embedder-fp32' is not measured" in table_text(
        shared_deployment(None)
    )


def test_brackets_are_printed_as_they_are():
    assert "[red]" in table_text(with_fields(embedder(), name="[red]"))


def test_one_model_is_enough_for_a_plan():
    deployment = shared_deployment(500.0)
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
    assert json.dumps(
        dataclasses.asdict(endpoint_state(shared_deployment(15000.0))), allow_nan=False
    )
