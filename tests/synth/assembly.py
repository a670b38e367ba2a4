"""Synthesises an environment and reads back what CloudFormation would receive."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aws_cdk import App, CloudFormationValidatePlugin, Validations
from cfnlint.config import ConfigMixIn
from cfnlint.decode.decode import decode_str
from cfnlint.runner import Runner
from cfnlint.runner.template.runner import run_template_by_data

from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.environment_stage import EnvironmentStage, Sources, read_sources
from tests.synth.deployments import ROOT

SOURCES = read_sources(ROOT)


@dataclass(frozen=True, kw_only=True)
class SynthesizedStack:
    """One template, where it lies, and the messages that stand at the stack."""

    name: str
    path: Path
    template: dict[str, Any]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    is_protected: bool

    def properties(self, resource_type: str) -> dict[str, dict[str, Any]]:
        """Properties of every resource of a type, by logical id."""
        found = self.template["Resources"].items()
        return {
            logical_id: resource.get("Properties", {})
            for logical_id, resource in found
            if resource["Type"] == resource_type
        }

    def only(self, resource_type: str) -> dict[str, Any]:
        """Properties of the one resource of a type."""
        (properties,) = self.properties(resource_type).values()
        return properties


Stacks = dict[str, SynthesizedStack]
LINTED = ConfigMixIn(regions=["us-east-1"])


@cache
def cfn_lint_rules() -> Any:
    """cfn-lint's own rules, which take longer to load than most templates to lint."""
    return Runner(LINTED).rules


def lint(text: str) -> list[Any]:
    """What cfn-lint's own rules find in a template's text."""
    template, faults = decode_str(text)
    document: Any = template
    return faults or list(run_template_by_data(document, LINTED, cfn_lint_rules()))


def context() -> dict[str, Any]:
    """The context of cdk.json."""
    found: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return found


def synthesized(
    folder: Path,
    environment: EnvironmentSpec,
    deployments: Sequence[Deployment],
    sources: Sources = SOURCES,
    environments: Mapping[str, EnvironmentSpec] = MappingProxyType({}),
    generators: Sequence[GenerationDeployment] = (),
    *,
    is_validated: bool = False,
) -> Stacks:
    """Every stack of an environment, by the last part of its path.

    Foundation, Builds, Access, Endpoint-<name>, Observability. With `is_validated` what the CDK's
    built-in validation refuses raises an error.
    """
    app = App(outdir=str(folder), analytics_reporting=False, context=context())
    if is_validated:
        Validations.of(app).add_plugins(CloudFormationValidatePlugin())
    EnvironmentStage(
        app,
        environment=environment,
        deployments=deployments,
        generators=generators,
        sources=sources,
        environments=environments,
    )
    app.synth()
    return {stack.name: stack for stack in read_stacks(folder)}


def read_stacks(folder: Path) -> Iterator[SynthesizedStack]:
    """Every stack of a cloud assembly."""
    for manifest in sorted(folder.glob("assembly-*/manifest.json")):
        artifacts = json.loads(manifest.read_text(encoding="utf-8"))["artifacts"]
        for artifact in artifacts.values():
            if artifact["type"] == "aws:cloudformation:stack":
                yield _stack(manifest.parent, artifact)


def _stack(folder: Path, artifact: dict[str, Any]) -> SynthesizedStack:
    path = folder / artifact["properties"]["templateFile"]
    entries = [entry for entries in _metadata(folder, artifact).values() for entry in entries]
    return SynthesizedStack(
        name=artifact["displayName"].split("/")[-1].split(" ")[0],
        path=path,
        template=json.loads(path.read_text(encoding="utf-8")),
        errors=tuple(entry["data"] for entry in entries if entry["type"] == "aws:cdk:error"),
        warnings=tuple(entry["data"] for entry in entries if entry["type"] == "aws:cdk:warning"),
        is_protected=artifact["properties"].get("terminationProtection", False),
    )


def _metadata(folder: Path, artifact: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    metadata: dict[str, list[dict[str, Any]]] = artifact.get("metadata", {})
    if "additionalMetadataFile" in artifact:
        metadata = {
            **metadata,
            **json.loads((folder / artifact["additionalMetadataFile"]).read_text(encoding="utf-8")),
        }
    return metadata
