"""Every rule has a name of its own and reads only the sections that it says it needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onboarding import checks
from onboarding.dataset import Datasets
from onboarding.document import Document, Place
from onboarding.environment_spec import EnvironmentSpec
from onboarding.hosting_spec import ScalingSpec
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec
from onboarding.platform import instance_types, serving_platforms
from onboarding.rules import placement_rules
from onboarding.rules.rule import (
    EndpointCase,
    EngineCase,
    EnvironmentCase,
    JoinCase,
    ModelCase,
    ScalingCase,
    VariantsCase,
)
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import FIXTURES

EMPTY = Document(file="x.yaml", data={}, places={(): Place(file="x.yaml", line=1)})
ROOT = FIXTURES / "base"
TREE = read_tree(ROOT)
VIEW = TREE.views["cloud"]
ENDPOINT = EndpointSpec(instance_type="ml.g5.xlarge")
G5 = instance_types()["ml.g5.xlarge"]
PLACEMENTS = tuple(checks.placements(VIEW))


def partial(rule, whole):
    """Return a spec that has the sections of a rule alone: reading another raises."""
    assert rule.needs <= set(type(whole).model_fields)
    sections = {name: getattr(whole, name) for name in rule.needs}
    return type(whole).model_construct(_fields_set=set(sections), **sections)


def model(rule) -> ModelSpec:
    assert rule.needs
    return partial(rule, TREE.models["example"])


def joining(rule) -> JoinCase:
    spec = JoinSpec(joins="example")
    whole = TREE.models["example"].model_copy(update={"endpoint": spec})
    return JoinCase(
        name="beside",
        spec=spec,
        model=partial(rule, whole),
        document=EMPTY,
        models=VIEW.models,
        shared_endpoints=("shared",),
    )


def engine(rule) -> EngineCase:
    platform = serving_platforms()["triton-26.05"]
    return EngineCase(
        spec=model(rule), document=EMPTY, platform=platform, instance=G5, instances=(G5,)
    )


def environment(rule) -> EnvironmentSpec:
    return partial(rule, TREE.environments["cloud"])


KINDS = (
    (checks.MODEL_RULES, lambda rule: [ModelCase(spec=model(rule), document=EMPTY,
                                                 datasets=Datasets(ROOT))]),
    (checks.ENGINE_RULES, lambda rule: [engine(rule)]),
    (checks.ENDPOINT_RULES, lambda rule: [EndpointCase(spec=partial(rule, ENDPOINT),
                                                       document=EMPTY)]),
    (checks.SCALING_RULES, lambda rule: [ScalingCase(scaling=ScalingSpec(), document=EMPTY,
                                                     of="an endpoint of one model")]),
    (checks.VARIANT_RULES, lambda rule: [VariantsCase(name="example", document=EMPTY, joined=(),
                                                      spec=partial(rule, ENDPOINT))]),
    (checks.JOIN_RULES, lambda rule: [joining(rule)]),
    (checks.PLACEMENT_RULES, lambda rule: [replace(case, environment=environment(rule))
                                           for case in PLACEMENTS]),
    (checks.ENVIRONMENT_RULES, lambda rule: [EnvironmentCase(spec=environment(rule), document=EMPTY,
                                                             is_inside_root=lambda path: True)]),
)  # fmt: skip
EVERY_RULE = [(rule, cases) for rules, cases in KINDS for rule in rules]


def test_every_rule_has_a_name_of_its_own():
    names = [rule.name for rule, _ in EVERY_RULE]
    assert len(names) == len(set(names)) == 121


@pytest.mark.parametrize(("rule", "cases"), EVERY_RULE, ids=lambda item: getattr(item, "name", ""))
def test_rule_reads_only_the_sections_it_needs(rule, cases):
    assert [fault for case in cases(rule) for fault in rule.faults(case)] == []


def test_refuses_a_platform_that_leaves_the_host_image_open():
    """No platform does today, so no file of tests/fixtures has this fault."""
    rule, case = placement_rules.host_image_is_named, PLACEMENTS[0]
    open_platform = case.platform.model_copy(update={"inference_ami_version": None})
    faults = list(rule.faults(replace(case, platform=open_platform)))
    assert [fault.line for fault in faults] == [4] and "inference_ami_version" in faults[0].way_out
    assert list(rule.faults(case)) == []
