"""Cloud assemblies on disk: the stacks of a synthesised one, and one with templates of our own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundhouse.errors import NotReadyError

STACK, NESTED = "aws:cloudformation:stack", "cdk:cloud-assembly"
MANIFEST = "manifest.json"
TEMPLATE_PROPERTIES = ("stackTemplateAssetObjectUrl", "additionalDependencies")
"""Properties that name the uploaded template; without them the cdk command line sends the file."""


@dataclass(frozen=True, kw_only=True)
class StackArtifact:
    """One stack of an assembly, with its manifest's version."""

    artifact_id: str
    content: Mapping[str, Any]
    folder: Path
    version: str

    @property
    def path(self) -> str:
        """Return the path of the stack's construct, as the cdk command line prints it."""
        return str(self.content.get("displayName", self.artifact_id))

    @property
    def file(self) -> Path:
        """Return the template's file."""
        return self.folder / str(self.content["properties"]["templateFile"])

    @property
    def template(self) -> dict[str, Any]:
        """Return the template that was synthesised."""
        template: dict[str, Any] = json.loads(self.file.read_text("utf-8"))
        return template


def stack_artifacts(assembly: Path) -> dict[str, StackArtifact]:
    """Return every stack of an assembly and of those nested in it, by stack name."""
    manifest = json.loads((assembly / MANIFEST).read_text("utf-8"))
    found: dict[str, StackArtifact] = {}
    for artifact_id, content in manifest["artifacts"].items():
        if content["type"] == NESTED:
            found |= stack_artifacts(assembly / content["properties"]["directoryName"])
        elif content["type"] == STACK:
            artifact = StackArtifact(
                artifact_id=artifact_id,
                content=content,
                folder=assembly,
                version=manifest["version"],
            )
            found[content["properties"].get("stackName", artifact_id)] = artifact
    return found


def write_assembly(
    folder: Path, stacks: Mapping[str, StackArtifact], templates: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write an assembly of the stacks that `templates` names, each with that template.

    Roles and tags are those that were synthesised.
    """
    artifacts, version = {}, ""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, template in templates.items():
            stack = stacks[name]
            artifacts[stack.artifact_id], version = _alone(stack), stack.version
            (folder / stack.content["properties"]["templateFile"]).write_text(
                json.dumps(template, indent=1), "utf-8"
            )
        (folder / MANIFEST).write_text(
            json.dumps({"version": version, "artifacts": artifacts}, indent=1), "utf-8"
        )
    except OSError as error:
        raise NotReadyError(
            f"{folder}: cannot be written ({error.strerror}); free the folder, then try again."
        ) from error


def _alone(stack: StackArtifact) -> dict[str, Any]:
    """Return the artifact without what it depends on."""
    properties = {
        key: value
        for key, value in stack.content["properties"].items()
        if key not in TEMPLATE_PROPERTIES
    }
    kept = {
        key: stack.content[key]
        for key in ("type", "environment", "displayName")
        if key in stack.content
    }
    return {**kept, "properties": properties}
