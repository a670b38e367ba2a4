"""The steps of a Triton repository of the user's own, of which nothing is compiled or measured.

Its archive holds the folders as they are, and a manifest.
"""

from __future__ import annotations

from pathlib import Path

from engine_build.errors import InputRefused
from engine_build.packaging.triton_repository import repository_fields
from engine_build.request import BuildContext
from engine_build.sources.source import fetch_wheel, pinned_checkpoint
from engine_build.steps.fetch import fetching_of
from engine_build.steps.package import builder_record, keep_archive
from engine_build.steps.step import BuildState
from onboarding.checkpoint import checkpoint_files
from onboarding.model_spec import RepositorySpec
from onboarding.triton_repository import CONFIGURATION, PYTHON, read_repository


def fetch(context: BuildContext, state: BuildState) -> None:
    """Find the repository, and refuse every fault of it. Raises SourceFault and InputRefused."""
    request, spec = context.request, context.request.model
    assert isinstance(spec, RepositorySpec)
    source, fetching = spec.repository, fetching_of(context, "source")
    pin = source.folder or f"{source.python_package}, folder {source.path or '.'}"
    with context.log.step("fetch", f"Triton repository {pin}"):
        if source.folder is not None:
            folder, bucket = source.folder, fetching.bucket
            path = pinned_checkpoint(folder, source.sha256, fetching.root, bucket, fetching.folder)
        else:
            path = fetch_wheel(
                source.python_package or "",
                source.sha256,
                source.path or ".",
                fetching.folder / "repository",
                fetching.folder,
                fetching.runner,
                (f"*/{CONFIGURATION}",),
            )
        repository = read_repository(path, pin, spec.name)
        plans, platform = source.plans, request.platform
        faults = [*repository.faults, *repository.backend_faults(platform.name, platform.backends)]
        for fault in faults:
            context.log.line(f"  {fault}")
        if faults:
            raise InputRefused(f"{len(faults)} faults stand above, the first: {faults[0]}")
        if repository.plans and plans is None:
            raise InputRefused(
                f"{repository.plans[0]} is a TensorRT plan, and the model file names no GPU and "
                "no build that made it; add `plans: {gpu: …, tensorrt: …}` to triton_repository."
            )
        for model in repository.models.values():
            note = "; its code runs as it is, in Triton's own process" * (model.backend == PYTHON)
            context.log.line(f"  {model.name}: {model.backend}{note}")
        state.source, state.repository = path, repository


def package(context: BuildContext, state: BuildState) -> None:
    """Write the archive and, last, the record into the work folder."""
    request, source = context.request, state.source
    assert source is not None
    model = state.repository.models[request.model.name]
    intent = f"repository of {model.name}, manifest, deterministic tar.gz"
    with context.log.step("package", intent):
        # Hidden files are none of it.
        files: dict[str, Path | str] = {name: source / name for name in checkpoint_files(source)}
        fields = repository_fields(model) | {"builder": builder_record(context)}
        keep_archive(context, state, files, fields)
