"""Memory findings of the shipped shared endpoint, with locks as a GPU build leaves them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from onboarding.deployment import Deployment, Target
from onboarding.lock import write_lock_entry
from onboarding.memory import (
    fewest_resident,
    instance_memory,
    memory_faults,
    memory_findings,
    memory_notes,
    pool_memories,
)
from onboarding.platform import instance_types
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from tests.unit.onboarding.manifests import lock_entry
from tests.unit.onboarding.trees import tree_root

TREE = read_tree(Path(__file__).resolve().parents[3])
SHARED = next(deployment for deployment in deployments(TREE, "dev") if deployment.multi_model)
CAPACITY_MIB = 24576 * 15 / 16 - 512
"""MiB that an A10G leaves to models."""


def with_memory(
    target: Target, mib: float | None, seconds: float = 2.0, host: float = 100.0
) -> Target:
    """A target whose lock says so."""
    entry = lock_entry(target.model.name, target.engine_key)
    sizes = {"device_memory_mib": mib, "host_memory_mib": host, "load_seconds": seconds}
    return dataclasses.replace(
        target,
        lock_entry=entry.model_copy(update={"manifest": entry.manifest.model_copy(update=sizes)}),
    )


def with_models(
    sizes: dict[str, float | None],
    seconds: float = 2.0,
    copies: int = 1,
    instance: str = "ml.g5.xlarge",
) -> Deployment:
    """The shared endpoint with models of these sizes."""
    first, row = SHARED.targets[0], instance_types()[instance]
    serving = first.model.serving.model_copy(update={"instances_per_gpu": copies})
    targets = tuple(
        with_memory(
            dataclasses.replace(
                first,
                model=first.model.model_copy(update={"name": name, "serving": serving}),
                instance_type=row,
                engine_key=f"{number:020x}",
            ),
            mib,
            seconds,
        )
        for number, (name, mib) in enumerate(sizes.items())
    )
    pool = dataclasses.replace(SHARED.own.pools[0], instance_type=row, targets=targets)
    return dataclasses.replace(SHARED, variants=(dataclasses.replace(SHARED.own, pools=(pool,)),))


def only_plan(deployment):
    (plan,) = pool_memories(deployment)
    return plan


@pytest.mark.parametrize(
    ("instance", "kind", "usable"),
    [
        ("ml.g4dn.xlarge", "GPU memory", 16384 * 15 / 16 - 512),
        ("ml.g5.12xlarge", "GPU memory", 24576 * 15 / 16 - 512),
        ("ml.p5.48xlarge", "GPU memory", 81920 * 0.99 - 512),
        ("ml.c7i.large", "host memory", 4096 - 1024),
    ],
)
def test_memory_is_of_one_gpu_or_of_the_host_less_a_reserve(instance, kind, usable):
    memory = instance_memory(instance_types()[instance])
    assert memory is not None and (memory.kind, memory.usable_mib) == (kind, pytest.approx(usable))


def test_models_that_do_not_fit_together_wait_for_each_others_loads():
    deployment = with_models({"a": 10000, "b": 9000, "c": 8000, "d": 4000}, seconds=2.5)
    plan = only_plan(deployment)
    assert not plan.fits
    totals = (9999.0, 10000.0, 18999.0, 19000.0, 31000.0)
    assert [fewest_resident(plan.models, total) for total in totals] == [0, 1, 1, 2, 4]
    (note,) = memory_notes(deployment)
    assert (
        "its 4 models take 31000 MiB of GPU memory together, and 22528 of its 24576 MiB are "
        "there for them: SageMaker unloads those that were used least recently" in note
    )
    assert "up to 2.5 s for 'd'. Put some of them on another endpoint" in note
    assert memory_faults(deployment) == () == memory_notes(with_models({"a": 10000, "b": 9000}))


LARGER = "choose an instance type with more memory"


@pytest.mark.parametrize(
    ("instance", "copies", "way_out"),
    [
        ("ml.g5.xlarge", 1, f"{LARGER} for each GPU, or a smaller model"),
        ("ml.g6.xlarge", 1, f"{LARGER}, such as ml.g6e.xlarge, ml.g6e.2xlarge, ml.g6e.4xlarge"),
        ("ml.g6.xlarge", 3, f"{LARGER}, such as ml.g6e.xlarge, ml.g6e.2xlarge, ml.g6e.4xlarge"),
    ],
)
def test_refuses_a_model_larger_than_the_memory_and_names_a_type_that_holds_a_copy(
    instance, copies, way_out
):
    deployment = with_models({"a": 23000, "b": 100}, instance=instance, copies=copies)
    (fault,) = memory_faults(deployment)
    assert fault.startswith(
        f"Model 'a' takes 23000 MiB of GPU memory (measured), and {instance} of endpoint "
        "'text-shared' leaves 22528 of its 24576 MiB; "
    )
    assert fault.endswith(way_out) and memory_notes(deployment) == ()


def test_copies_count_for_packing_and_one_copy_for_refusal():
    deployment = with_models({"a": 9000, "b": 9000}, copies=2)
    plan = only_plan(deployment)
    assert (plan.total_mib, plan.fits) == (36000, False)
    heavy = with_models({"a": 12000}, copies=2)
    assert memory_faults(heavy) == ()
    (note,) = memory_notes(heavy)
    assert (
        "the copies of 'a' take up to 24000 MiB" in note
        and "lower its 'serving.instances_per_gpu'" in note
    )


def _tree_with(tmp_path, **manifest):
    root = tree_root(tmp_path, {})
    shared = next(
        deployment for deployment in deployments(read_tree(root), "cloud") if deployment.multi_model
    )
    for target in shared.targets:
        entry = lock_entry(target.model.name, target.engine_key)
        entry = entry.model_copy(update={"manifest": entry.manifest.model_copy(update=manifest)})
        write_lock_entry(root / shared.environment.locks, target.model.name, entry)
    return read_tree(root)


def test_check_finds_a_model_that_does_not_fit_with_file_and_line(tmp_path):
    findings = memory_findings(_tree_with(tmp_path, device_memory_mib=30000.0))
    (fault,) = findings.faults
    assert (fault.file, fault.line) == (
        "endpoints/shared.yaml",
        fault.line,
    ) and fault.line is not None
    assert fault.what.startswith("in environment cloud, Model 'joiner' takes 30000 MiB")
    assert fault.way_out.startswith("choose an instance type with more memory")


def test_check_judges_no_tree_with_faults_and_reports_a_broken_lock(tmp_path):
    broken = read_tree(tree_root(tmp_path, {"models/example.yaml": {"min: 1": "min: 9"}}))
    assert memory_findings(broken).faults == ()
    root = tree_root(tmp_path / "two", {})
    (root / "models" / "example.lock.yaml").write_text("engines: [")
    (fault,) = memory_findings(read_tree(root)).faults
    assert fault.file == "models/example.lock.yaml"
