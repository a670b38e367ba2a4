"""Every rule reads only the sections it says, and has a fixture that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from onboarding import checks
from onboarding.checks import ENDPOINT_RULES, ENGINE_RULES, ENVIRONMENT_RULES, MODEL_RULES
from onboarding.dataset import Datasets, is_inside
from onboarding.document import Document, Place
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import own_endpoint
from onboarding.hosting_spec import ScalingSpec
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec
from onboarding.platform import instance_types, serving_platforms
from onboarding.rules import (
    join_rules,
    placement_rules,
    scaling_rules,
    variant_rules,
)
from onboarding.rules.rule import (
    EndpointCase,
    EngineCase,
    EnvironmentCase,
    JoinCase,
    ModelCase,
    ScalingCase,
    VariantsCase,
    apply_rules,
)
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import FIXTURES, tree_root

EMPTY = Document(file="x.yaml", data={}, places={(): Place(file="x.yaml", line=1)})
FAULTS = sorted((FIXTURES / "faults").glob("*.yaml"))
EVERY_RULE = (
    *MODEL_RULES,
    *ENDPOINT_RULES,
    *scaling_rules.RULES,
    *join_rules.RULES,
    *variant_rules.RULES,
    *ENVIRONMENT_RULES,
    *placement_rules.RULES,
    *ENGINE_RULES,
)


def test_every_rule_has_a_name_of_its_own():
    names = [rule.name for rule in EVERY_RULE]
    assert len(names) == len(set(names))


def _rules_that_refuse(root: Path) -> set[str]:
    refusing: set[str] = set()
    for view in read_tree(root).views.values():
        subjects = [
            (placement_rules.RULES, case, view.environment.sections)
            for case in checks.placements(view)
        ]
        subjects += [
            (ENGINE_RULES, case, model.sections)
            for model, case in checks.engine_cases(view, Datasets(root))
        ]
        subjects += [(join_rules.RULES, case, model.sections) for model, case in checks.joins(view)]
        subjects += [
            (variant_rules.RULES, case, endpoint.sections)
            for endpoint, case in checks.variants(view)
        ]
        inside = EnvironmentCase(
            spec=view.environment.spec,
            document=view.environment.document,
            is_inside_root=lambda path: is_inside(root, path),
        )
        subjects.append((ENVIRONMENT_RULES, inside, view.environment.sections))
        for model in view.models.values():
            model_case = ModelCase(
                spec=model.spec, document=model.document, datasets=Datasets(root)
            )
            subjects.append((MODEL_RULES, model_case, model.sections))
            own = own_endpoint(model)
            if own is not None:
                subjects += list(_endpoint_subjects(own, multi_model=False))
        for shared in view.endpoints.values():
            subjects += list(_endpoint_subjects(shared, multi_model=True))
        for rules, case, sections in subjects:
            refusing |= {rule.name for rule in rules if list(apply_rules([rule], case, sections))}
    return refusing


def _endpoint_subjects(endpoint, *, multi_model: bool) -> Iterator[Any]:
    case = EndpointCase(spec=endpoint.spec, document=endpoint.document, multi_model=multi_model)
    yield ENDPOINT_RULES, case, endpoint.sections
    if {"scaling", "asynchronous"} <= endpoint.sections:
        asynchronous = endpoint.spec.asynchronous is not None
        scaling = ScalingCase(
            scaling=endpoint.spec.scaling, document=endpoint.document, asynchronous=asynchronous
        )
        yield scaling_rules.RULES, scaling, endpoint.sections


def test_every_rule_refuses_a_fixture(tmp_path):
    refusing: set[str] = set()
    for number, path in enumerate(FAULTS):
        refusing |= _rules_that_refuse(
            tree_root(tmp_path / str(number), yaml.safe_load(path.read_text())["bad"])
        )
    # No platform leaves the host image open today;
    # test_refuses_a_platform_that_leaves_the_host_image_open stands in. Nor does a baseline need a
    # newer driver than its platform: test_refuses_a_driver_that_is_older_than_a_baselines_cuda.
    assert {rule.name for rule in EVERY_RULE} - refusing == {
        "host_image_is_named",
        "driver_runs_the_baseline",
    }


def test_refuses_a_platform_that_leaves_the_host_image_open(tmp_path):
    view = read_tree(tree_root(tmp_path, {})).views["cloud"]
    case = next(checks.placements(view))
    open_platform = case.platform.model_copy(update={"inference_ami_version": None})
    faults = list(placement_rules.host_image_is_named.faults(replace(case, platform=open_platform)))
    assert [fault.line for fault in faults] == [4] and "inference_ami_version" in faults[0].way_out
    assert list(placement_rules.host_image_is_named.faults(case)) == []


@pytest.mark.parametrize("rule", [*MODEL_RULES, *ENGINE_RULES], ids=lambda rule: rule.name)
def test_rule_reads_only_the_sections_it_needs(rule, tmp_path):
    root = tree_root(tmp_path, {})
    whole = read_tree(root).models["example"]
    sections = {name: getattr(whole, name) for name in rule.needs}
    assert rule.needs and rule.needs <= set(ModelSpec.model_fields)
    partial = ModelSpec.model_construct(_fields_set=set(sections), **sections)
    document = EMPTY
    if rule in MODEL_RULES:
        case = ModelCase(spec=partial, document=document, datasets=Datasets(root))
    else:
        case = EngineCase(
            spec=partial,
            document=document,
            platform=serving_platforms()["triton-26.05"],
            instance=instance_types()["ml.g5.xlarge"],
            instances=(instance_types()["ml.g5.xlarge"],),
        )
    assert list(rule.faults(case)) == []


@pytest.mark.parametrize("rule", placement_rules.RULES, ids=lambda rule: rule.name)
def test_placement_rule_reads_only_the_sections_of_the_environment_it_needs(rule, tmp_path):
    for case in checks.placements(read_tree(tree_root(tmp_path, {})).views["cloud"]):
        sections = {name: getattr(case.environment, name) for name in rule.needs}
        partial = EnvironmentSpec.model_construct(_fields_set=set(sections), **sections)
        assert list(rule.faults(replace(case, environment=partial))) == []


@pytest.mark.parametrize("rule", ENVIRONMENT_RULES, ids=lambda rule: rule.name)
def test_environment_rule_reads_only_the_sections_it_needs(rule, tmp_path):
    whole = read_tree(tree_root(tmp_path, {})).environments["cloud"]
    sections = {name: getattr(whole, name) for name in rule.needs}
    partial = EnvironmentSpec.model_construct(_fields_set=set(sections), **sections)
    document = EMPTY
    assert (
        list(
            rule.faults(
                EnvironmentCase(spec=partial, document=document, is_inside_root=lambda path: True)
            )
        )
        == []
    )


@pytest.mark.parametrize("rule", ENDPOINT_RULES, ids=lambda rule: rule.name)
def test_endpoint_rule_reads_only_the_sections_it_needs(rule):
    whole = EndpointSpec(instance_type="ml.g5.xlarge")
    sections = {name: getattr(whole, name) for name in rule.needs}
    partial = EndpointSpec.model_construct(_fields_set=set(sections), **sections)
    document = EMPTY
    assert list(rule.faults(EndpointCase(spec=partial, document=document))) == []


@pytest.mark.parametrize("rule", variant_rules.RULES, ids=lambda rule: rule.name)
def test_variant_rule_reads_only_the_sections_it_needs(rule):
    whole = EndpointSpec(instance_type="ml.g5.xlarge")
    sections = {name: getattr(whole, name) for name in rule.needs}
    partial = EndpointSpec.model_construct(_fields_set=set(sections), **sections)
    assert (
        list(rule.faults(VariantsCase(name="example", spec=partial, document=EMPTY, joined=())))
        == []
    )


@pytest.mark.parametrize("rule", join_rules.RULES, ids=lambda rule: rule.name)
def test_join_rule_reads_only_the_sections_it_needs(rule, tmp_path):
    models = read_tree(tree_root(tmp_path, {})).views["cloud"].models
    spec = JoinSpec(joins="example")
    sections = {
        name: spec if name == "endpoint" else getattr(models["example"].spec, name)
        for name in rule.needs
    }
    partial = ModelSpec.model_construct(_fields_set=set(sections), **sections)
    case = JoinCase(
        name="beside",
        spec=spec,
        model=partial,
        document=EMPTY,
        models=models,
        shared_endpoints=("shared",),
    )
    assert "endpoint" in rule.needs and list(rule.faults(case)) == []


@pytest.mark.parametrize("rule", scaling_rules.RULES, ids=lambda rule: rule.name)
def test_scaling_rule_has_nothing_to_say_of_the_defaults(rule):
    assert (
        list(rule.faults(ScalingCase(scaling=ScalingSpec(), document=EMPTY, asynchronous=False)))
        == []
    )
