"""Rules of inference components: their GPUs, copies, scaling to zero, updates, and containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from template_rules.hosting import (
    ALARM,
    COMPONENT,
    ENDPOINT,
    MODEL,
    TARGET,
    component_variant,
    components_of,
    config_of,
    containers,
    instance_facts,
    is_gpu,
    scaled_component,
    variants,
)
from template_rules.metrics import alarm_metrics
from template_rules.rule import resource_rule, template_rule
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import at, fields, is_known, known_text, number

RESOURCES = "Specification.ComputeResourceRequirements"
ACCELERATORS = f"{RESOURCES}.NumberOfAcceleratorDevicesRequired"
TENSOR_PARALLEL, SERVED_NAME = "SM_VLLM_TENSOR_PARALLEL_SIZE", "SM_VLLM_SERVED_MODEL_NAME"
PREFIX, INSTALLS = "SM_VLLM_", "STANDARD_AUTO_INSTALL_REQ"
ROLLING = "DeploymentConfig.RollingUpdatePolicy"
MANAGED, NO_CAPACITY = "ManagedInstanceScaling", "NoCapacityInvocationFailures"


@template_rule("E9132", "Endpoint config that inference components cannot use")
def component_configs(assembly: Assembly) -> Iterator[Problem]:
    """The config of an endpoint with components has a role, and variants without a model."""
    for endpoint in assembly.of_type(ENDPOINT):
        config = config_of(assembly, endpoint)
        if config is None or not components_of(assembly, endpoint):
            continue
        if "ExecutionRoleArn" not in config.properties:
            what = "an endpoint config for inference components has a role"
            yield config.problem("ExecutionRoleArn", what, "name the role of its containers")
        for variant in variants(config):
            if "ModelName" in variant.properties:
                what = "a variant with a model takes no inference component"
                yield config.problem(f"{variant.path}.ModelName", what, "remove it")


@template_rule("E9133", "GPUs of an inference component that its instance or its engine lacks")
def component_accelerators(assembly: Assembly) -> Iterator[Problem]:
    """A component takes as many GPUs as its engine runs on, and no more than an instance has."""
    for component in assembly.of_type(COMPONENT):
        given, variant = number(component.at(ACCELERATORS)), component_variant(assembly, component)
        types = () if variant is None else variant.instance_types
        if "BaseInferenceComponentName" in fields(component.properties.get("Specification")):
            continue
        if given is None and any(map(is_gpu, types)) and component.at(RESOURCES) is not None:
            what = "the component takes no GPU of its instance"
            yield component.problem(ACCELERATORS, what, "write how many its engine runs on")
        for facts in filter(None, map(instance_facts, types)):
            if given is not None and facts.gpu_count and facts.gpu_count < given:
                yield component.problem(
                    ACCELERATORS,
                    f"{facts.name} has fewer GPUs, and the component is never placed",
                    "take fewer, or a larger instance type",
                    value=f"{given:g}",
                    allowed=f"at most {facts.gpu_count}",
                )
        wanted = number(_variables(assembly, component).get(TENSOR_PARALLEL))
        if None not in (given, wanted) and given != wanted:
            yield component.problem(
                ACCELERATORS,
                f"the engine runs on {wanted:g} GPUs ({TENSOR_PARALLEL})",
                "write the same number in both",
                value=f"{given:g}",
            )


@template_rule("E9134", "Number of copies that SageMaker refuses, or that an update resets")
def component_copies(assembly: Assembly) -> Iterator[Problem]:
    """A new component has a copy, and an update of a scaled one keeps the copies that it finds."""
    scaled = [scaled_component(assembly, target) for target in assembly.of_type(TARGET)]
    for component in assembly.of_type(COMPONENT):
        count = number(component.at("RuntimeConfig.CopyCount"))
        if count == 0:
            what = "a component cannot be created without a copy"
            way_out = "write 1, and let scaling take it away"
            yield component.problem("RuntimeConfig.CopyCount", what, way_out, value="0")
        elif count is not None and component in scaled:
            yield component.problem(
                "RuntimeConfig.CopyCount",
                "every update sets the number of copies, however many scaling wants",
                "write it on a condition that is true for a new component alone",
                value=f"{count:g}",
            )


@template_rule("E9135", "Scaling to zero without a way back, or without instances to release")
def scale_to_zero(assembly: Assembly) -> Iterator[Problem]:
    """No copies need no instances, and an alarm that adds one once a request finds none."""
    waking = {
        known_text((use.dimensions or {}).get("InferenceComponentName"))
        for alarm in assembly.of_type(ALARM)
        for use in alarm_metrics(alarm)
        if use.metric == NO_CAPACITY and not _only_notifies(alarm)
    }
    to_zero = []
    for target in assembly.of_type(TARGET):
        component = scaled_component(assembly, target)
        if component is None or number(target.properties.get("MinCapacity")) != 0:
            continue
        to_zero.append(component)
        if component.name not in waking:
            what = f"no alarm on {NO_CAPACITY} brings the first copy back"
            way_out = "add a step policy of +1 copy and the alarm that starts it"
            yield target.problem("MinCapacity", what, way_out, value="0")
    for component in assembly.of_type(COMPONENT):
        variant = component_variant(assembly, component)
        managed = fields(None if variant is None else variant.properties.get(MANAGED))
        least = number(managed.get("MinInstanceCount"))
        if variant is None or least is None:
            continue
        path = f"{variant.path}.{MANAGED}.MinInstanceCount"
        if component in to_zero and least > 0:
            what = "instances without a copy are paid for"
            yield variant.config.problem(path, what, "write 0", value=f"{least:g}")
        elif component not in to_zero and least == 0 and _is_base(component):
            what = "copies that never go to zero need an instance"
            yield variant.config.problem(path, what, "write 1 or more", value="0")


@template_rule("E9136", "Copies that the most instances of a variant do not hold")
def component_capacity(assembly: Assembly) -> Iterator[Problem]:
    """Instances are enough for the most copies, and for a batch of an update beside them."""
    for target in assembly.of_type(TARGET):
        component = scaled_component(assembly, target)
        most = number(target.properties.get("MaxCapacity"))
        variant = None if component is None else component_variant(assembly, component)
        if component is None or variant is None or most is None:
            continue
        accelerators = number(component.at(ACCELERATORS))
        facts = [instance_facts(name) for name in variant.instance_types]
        counts = [item.gpu_count for item in facts if item is not None and item.gpu_count]
        limit = number(at(variant.properties, MANAGED, "MaxInstanceCount"))
        if limit is None or not accelerators or not counts:
            continue
        held = limit * (min(counts) // accelerators)
        if held <= most:
            yield variant.config.problem(
                f"{variant.path}.{MANAGED}.MaxInstanceCount",
                f"{limit:g} instances hold {held:g} copies, and scaling wants {most:g}; an update "
                "needs room for one more",
                "raise it",
                value=f"{limit:g}",
            )


@resource_rule("E9138", "vLLM container that installs packages, or whose model has no name", MODEL)
def vllm_container(model: Resource) -> Iterator[Problem]:
    """AWS's vLLM image installs what the checkpoint asks for, and names a model by its folder."""
    for path, container in containers(model):
        variables = fields(container.get("Environment"))
        place = f"{path}.Environment"
        if not any(str(name).startswith(PREFIX) for name in variables):
            continue
        if known_text(variables.get(INSTALLS, "true")) != "false" and is_known(
            variables.get(INSTALLS)
        ):
            what = "the container installs the packages of a requirements.txt in the checkpoint"
            yield model.problem(f"{place}.{INSTALLS}", what, 'write "false"')
        if SERVED_NAME not in variables:
            what = "clients would have to call the model /opt/ml/model"
            yield model.problem(f"{place}.{SERVED_NAME}", what, "write the model's name")


def _is_base(component: Resource) -> bool:
    return component.at("Specification.BaseInferenceComponentName") is None


def _only_notifies(alarm: Resource) -> bool:
    actions = alarm.properties.get("AlarmActions")
    return all(":sns:" in str(action) for action in (actions if isinstance(actions, list) else ()))


def _variables(assembly: Assembly, component: Resource) -> dict[str, Any]:
    """Return the environment of the component's first container."""
    model = assembly.find(component.at("Specification.ModelName"), MODEL)
    found = () if model is None else tuple(containers(model))
    own = fields(component.at("Specification.Container"))
    return fields((found[0][1] if found else own).get("Environment"))
