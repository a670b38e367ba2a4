"""One text generator, as its file says or as one environment overrides it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onboarding.document import Document
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import InstanceType, instance_types
from onboarding.text_generation.checkpoint import Checkpoint, CheckpointError
from onboarding.text_generation.platforms import GenerationPlatform, generation_platforms
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.validation import Checked


@dataclass(frozen=True, kw_only=True)
class GenerationCase:
    """A spec with its document; `checkpoint` None: its headers are not in the tree."""

    spec: TextGenerationSpec
    document: Document
    root: Path
    checkpoint: Checkpoint | CheckpointError | None

    @property
    def headers(self) -> Checkpoint | None:
        """The checkpoint where it can be read."""
        return self.checkpoint if isinstance(self.checkpoint, Checkpoint) else None

    @property
    def headers_source(self) -> tuple[str, str | None]:
        """The key of `source` that says where the headers lie, and its value."""
        source = self.spec.source
        if source.headers is None:
            return "checkpoint", source.checkpoint
        return "headers", source.headers

    @property
    def platform(self) -> GenerationPlatform | None:
        """The row of `serving.platform`; None for an unknown one."""
        return generation_platforms().get(self.spec.serving.platform)

    @property
    def engine_version(self) -> str | None:
        """The version of vLLM: the row's, else the file's; None where neither knows it."""
        row = self.platform
        if row is not None and row.engine_version is not None:
            return row.engine_version
        return self.spec.serving.engine_version


@dataclass(frozen=True, kw_only=True)
class GenerationPlacementCase:
    """One text generator in one environment; the model's case holds its overridden spec."""

    model: GenerationCase
    environment: Checked[EnvironmentSpec]

    @property
    def named_types(self) -> Mapping[int, InstanceType]:
        """The instance types of the file that have a row, by their place in the list."""
        names = enumerate(self.model.spec.endpoint.instance_types)
        return {index: instance_types()[name] for index, name in names if name in instance_types()}

    @property
    def region(self) -> str | None:
        """The environment's region, where that section is valid."""
        is_there = "region" in self.environment.sections
        return self.environment.spec.region if is_there else None

    def candidates(self) -> Iterator[InstanceType]:
        """Yield the GPU types to plan for: those named, or all that the region has."""
        if self.model.spec.endpoint.instance_types:
            yield from (row for row in self.named_types.values() if row.is_gpu)
            return
        for row in instance_types().values():
            if row.is_gpu and not (self.region and row.is_missing_in(self.region)):
                yield row
