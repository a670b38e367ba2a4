"""What a change of files does to a text generator's endpoint."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding import names
from onboarding.tree import read_tree
from roundhouse.gitops.endpoint_facts import variant_facts
from roundhouse.gitops.plan import Change, environment_plan, generation_change
from roundhouse.gitops.plan_document import plan_inputs
from tests.synth.generation_cases import (
    FIXED,
    IMAGES,
    SCALED,
    ZERO,
    generator,
    generator_files,
    knee,
    lock_checkpoints,
    template,
)
from tests.unit.onboarding.trees import tree_root

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def generation():
    return generator(**SCALED)


def change(before, after):
    sides = [None if item is None else template(item) for item in (before, after)]
    return generation_change("us-east-1", "chat", after, *sides)


def test_another_checkpoint_rolls_copies_over_in_batches(generation):
    entry = generation.entry.model_copy(update={"checkpoint_key": "1" * 20})
    found = change(generation, dataclasses.replace(generation, entry=entry))
    classes = {item.id: item.change for item in found.resources}
    assert (classes["Model"], classes["InferenceComponent"]) == ("new-version", "in-place")
    assert "EndpointConfig" not in classes and not found.outage
    assert (found.rollout.kind, found.rollout.step_percents) == ("rolling copies", (50.0, 100.0))
    assert found.permissions.added and found.permissions.removed


def test_knee_moves_the_scaling_target_and_the_queues_bound(generation):
    entry = generation.entry.model_copy(
        update={"knee": knee(10, generation.candidate.instance_type)}
    )
    found = change(generation, dataclasses.replace(generation, entry=entry))
    (moved,) = (item for item in found.scaling if "target" in item.what)
    assert moved.after == 7.0 and "x 0.7 = 7 " in moved.derivation


def test_new_endpoint_costs_its_instances_from_least_to_most(generation):
    found = change(None, generation)
    assert found.kind == "new" and found.rollout is None
    (variant,) = variant_facts(template(generation))
    assert (variant.least, variant.most) == (1, 6)
    (zero,) = variant_facts(template(generator(**ZERO)))
    assert zero.least == 0


def test_nothing_changes_where_no_file_does(generation):
    assert change(generation, generation) is None
    assert change(generation, None).outage


def test_lock_entries_are_inputs_of_a_plan():
    fixed = generator(**FIXED)
    inputs = plan_inputs(fixed.environment, (), (fixed,))
    assert f"lock of chat, checkpoint {fixed.entry.checkpoint_key}" in inputs


def test_removed_generator_that_is_deployed_is_listed_once(tmp_path):
    root = tree_root(tmp_path, generator_files(**SCALED))
    (removed,) = lock_checkpoints(root)
    base = read_tree(root)
    (root / "models/chat.yaml").unlink()
    stack = names.stack_name(removed.environment, f"endpoint-{removed.name}")
    change = Change(
        environment=removed.environment,
        base=base,
        head=read_tree(root),
        image_uris=IMAGES,
        deployed={stack: template(removed)},
    )
    found = environment_plan(change, lambda *_: {}).endpoints
    assert [(item.name, item.kind, item.outage) for item in found] == [(removed.name, "gone", True)]
