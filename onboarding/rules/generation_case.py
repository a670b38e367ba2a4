"""One text generator, as its file says or as one environment overrides it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onboarding.dataset import is_inside
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import EnvironmentView
from onboarding.platform import InstanceType, instance_types
from onboarding.prices import price
from onboarding.text_generation.checkpoint import (
    CONFIGURATION,
    Checkpoint,
    CheckpointError,
    read_folder,
    read_headers_file,
)
from onboarding.text_generation.planner import Request
from onboarding.text_generation.platforms import GenerationPlatform, generation_platforms
from onboarding.text_generation.spec import GenerationSourceSpec, TextGenerationSpec
from onboarding.validation import Checked


@dataclass(frozen=True, kw_only=True)
class GenerationCase:
    """A file, its checkpoint's headers, and the environment that it is judged in, if in one.

    `checkpoint` None: its headers are not in the tree.
    """

    file: Checked[TextGenerationSpec]
    root: Path
    checkpoint: Checkpoint | CheckpointError | None
    environment: Checked[EnvironmentSpec] | None = None

    @property
    def spec(self) -> TextGenerationSpec:
        """What the file holds."""
        return self.file.spec

    @property
    def headers(self) -> Checkpoint | None:
        """The checkpoint where it can be read."""
        return self.checkpoint if isinstance(self.checkpoint, Checkpoint) else None

    @property
    def headers_key(self) -> str:
        """The key that says where the headers lie."""
        return "source.checkpoint" if self.spec.source.headers is None else "source.headers"

    @property
    def platform(self) -> GenerationPlatform | None:
        """The row of `serving.platform`; None for an unknown one."""
        return generation_platforms().get(self.spec.serving.platform)

    @property
    def engine_version(self) -> str | None:
        """The version of vLLM; None for an unknown platform."""
        return None if self.platform is None else self.platform.engine_version

    @property
    def named_types(self) -> Mapping[int, InstanceType]:
        """The instance types of the file that have a row, by their place in the list."""
        names = enumerate(self.spec.endpoint.instance_types)
        return {index: instance_types()[name] for index, name in names if name in instance_types()}

    @property
    def region(self) -> str | None:
        """The environment's region."""
        return None if self.environment is None else self.environment.spec.region

    def candidates(self) -> Iterator[InstanceType]:
        """Yield the GPU types to plan for: those named, or all that the region has."""
        if self.spec.endpoint.instance_types:
            yield from (row for row in self.named_types.values() if row.is_gpu)
            return
        for row in instance_types().values():
            if row.is_gpu and not (self.region and row.is_missing_in(self.region)):
                yield row

    def request(self) -> Request | None:
        """Return what the planner is asked; None where the checkpoint's headers are not known."""
        if self.headers is None:
            return None
        region = self.region

        def hourly(name: str) -> float | None:
            return None if region is None else price(region, "hosting", name)

        return Request(
            spec=self.spec,
            checkpoint=self.headers,
            engine_version=self.engine_version,
            price=hourly,
        )


def generation_cases(view: EnvironmentView, root: Path) -> Iterator[GenerationCase]:
    """Return every text generator of an environment."""
    for file in view.generators.values():
        yield generation_case(file, root, view.environment)


def generation_case(
    file: Checked[TextGenerationSpec],
    root: Path,
    environment: Checked[EnvironmentSpec] | None = None,
) -> GenerationCase:
    """Return one text generator with its checkpoint's headers, where they lie in the tree."""
    return GenerationCase(
        file=file,
        root=root,
        checkpoint=read_checkpoint(file.spec.source, root),
        environment=environment,
    )


def read_checkpoint(
    source: GenerationSourceSpec, root: Path
) -> Checkpoint | CheckpointError | None:
    """Return the headers of a source, or what is wrong with them; None: not in the tree."""
    try:
        if source.headers is not None:
            if not is_inside(root, source.headers):
                return CheckpointError("lies outside the onboarding root", "copy it there")
            return read_headers_file(root / source.headers)
        folder = source.checkpoint
        if folder is None or "://" in folder or not is_inside(root, folder):
            return None
        path = root / folder / (source.path or "")
        if not path.is_dir():
            return None
        if not (path / CONFIGURATION).is_file():
            return CheckpointError(f"has no {CONFIGURATION}", "save it with transformers")
        return read_folder(path)
    except CheckpointError as error:
        return error
