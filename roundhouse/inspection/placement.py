"""Where a new model is served: a shared endpoint, or one of its own that every environment fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import InstanceType, instance_types, serving_platforms
from onboarding.tree import Tree
from onboarding.yaml_text import compose_yaml, load_yaml
from roundhouse.inspection.model_file import commented

GPU_TYPES = ("ml.g5.xlarge", "ml.g6.xlarge", "ml.g4dn.xlarge")
CPU_TYPES = ("ml.c7i.xlarge", "ml.c6i.xlarge", "ml.m5.xlarge")
"""First choices of a new endpoint; the first that the environment's region has."""
CPU_SLO_MS = 2000
OVERRIDE = "{{endpoint: {{instance_type: {type}, latency_slo_ms: {slo}, scaling: {{max: 1}}}}}}"


def shared_endpoint_lines(name: str) -> str:
    """Return the section of a model that joins a shared endpoint."""
    own = "{instance_type: ml.g5.xlarge, latency_slo_ms: 50, scaling: {min: 1, max: 2}}"
    return "\n".join(
        (
            commented(f"endpoint: {name}", f"endpoints/{name}.yaml, shared; or one of its own:"),
            f"# endpoint: {own}\n",
        )
    )


def own_endpoint_lines(instance: InstanceType) -> str:
    """Return the section of a model with an endpoint of its own."""
    what = (
        f"its GPU, {instance.gpu}, is what the engine is compiled for"
        if instance.is_gpu
        else "a CPU: ONNX Runtime answers"
    )
    return "\n".join(
        (
            commented("endpoint:", "of its own; or the name of a file in endpoints/"),
            commented(f"  instance_type: {instance.name}", what),
            f"  latency_slo_ms: {50 if instance.is_gpu else CPU_SLO_MS}",
            "  scaling: {min: 1, max: 2}\n",
        )
    )


def first_choice(environment: EnvironmentSpec) -> InstanceType | None:
    """Return the type of a first endpoint there; None where no choice of ours is hosted."""
    platform = serving_platforms().get(environment.platform)
    names = CPU_TYPES if platform is None or platform.tensorrt is None else GPU_TYPES
    known = (instance_types()[name] for name in names if name in instance_types())
    return next((row for row in known if not row.is_missing_in(environment.region)), None)


def choose_types(tree: Tree) -> tuple[InstanceType, Mapping[str, str]]:
    """Return the type that the model file names, and overrides as YAML by environment."""
    choices = {name: first_choice(spec) for name, spec in sorted(tree.environments.items())}
    known = [row for row in choices.values() if row is not None]
    gpus = [row for row in known if row.is_gpu]
    chosen = (gpus or known or [instance_types()[GPU_TYPES[0]]])[0]
    overrides = {
        name: OVERRIDE.format(type=row.name, slo=50 if row.is_gpu else CPU_SLO_MS)
        for name, row in choices.items()
        if row is not None and row != chosen
    }
    return chosen, overrides


def with_override(text: str, model: str, override: str) -> str | None:
    """Return an environment file with an override of a model, else as it was.

    None where that cannot be written without changing anything else.
    """
    try:
        edited = _insert(text, model, override)
        if edited is None:
            return None
        expected: Any = load_yaml(text)
        models = dict(expected.get("models") or {})
        if model in models:
            return None
        expected = {**expected, "models": {**models, model: load_yaml(override)}}
        return edited if load_yaml(edited) == expected else None
    except (yaml.YAMLError, ValueError, AttributeError, TypeError):
        return None


def _insert(text: str, model: str, override: str) -> str | None:
    root = compose_yaml(text)
    if not isinstance(root, yaml.MappingNode):
        return None
    nodes = {key.value: (key, value) for key, value in root.value}
    entry, lines = f"{model}: {override}\n", text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if "models" not in nodes:
        return "".join((*lines, "\nmodels:\n", f"  {entry}"))
    key, value = nodes["models"]
    if isinstance(value, yaml.MappingNode) and value.flow_style and value.value:
        at = value.start_mark.index + 1
        return f"{text[:at]}{model}: {override}, {text[at:]}"
    if isinstance(value, yaml.MappingNode) and not value.flow_style:
        mark = value.value[0][0].start_mark
        lines.insert(mark.line, f"{' ' * mark.column}{entry}")
        return "".join(lines)
    if isinstance(value, yaml.ScalarNode) and value.value == "":
        lines.insert(key.start_mark.line + 1, f"  {entry}")
        return "".join(lines)
    return None


def environment_edits(
    tree: Path, model: str, overrides: Mapping[str, str]
) -> Iterator[tuple[str, str, str | None]]:
    """Yield every environment to override: its file, the line to add, the file's new text.

    None: a person must add the line.
    """
    for name, override in overrides.items():
        file = f"environments/{name}.yaml"
        text = (tree / file).read_text(encoding="utf-8")
        yield file, f"models: {{{model}: {override}}}", with_override(text, model, override)
