"""An ensemble of published engines: the files of its archive, and what its manifest says of it.

In the archive every step keeps its folders and files, but for `manifest_check.py`, which is of this
version: it finds the step's own manifest, which lies beside the ensemble's as `manifest-STEP.json`.
No two models' folders collide, since no model's name holds an underscore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import InputRefused
from engine_build.packaging.archive import MANIFEST_CHECK, EngineArchive, backend_file
from engine_build.packaging.repository import (
    CONFIGURATION,
    ENSEMBLE,
    EnsembleStep,
    ensemble_of_steps,
    text,
)
from onboarding.chain import Chain, Interface, chain, chain_problems
from onboarding.manifest import MANIFEST_NAME, EnsembleRecord, StepRecord, TensorRecord
from onboarding.model_spec import EnsembleSpec


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """An ensemble of published engines: what it serves, and its archive's files and record."""

    spec: EnsembleSpec
    archives: Mapping[str, EngineArchive]
    chain: Chain

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        """What clients send."""
        return self.chain.inputs

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        """What clients get."""
        return self.chain.outputs

    @property
    def max_batch_size(self) -> int:
        """Rows of the largest batch that every step takes, or fewer where the file says so."""
        sizes = [archive.manifest.max_batch_size for archive in self.archives.values()]
        own = self.spec.serving.dynamic_batching.max_batch_size
        return min(sizes if own is None else [*sizes, own])

    @property
    def record(self) -> EnsembleRecord:
        """What the manifest says of the steps."""
        return EnsembleRecord(
            steps={
                name: StepRecord(
                    engine_key=archive.manifest.engine_key, manifest=_manifest_file(name)
                )
                for name, archive in self.archives.items()
            },
            images=tuple(self._images()),
            example=self.spec.example,
        )

    @property
    def configuration_file(self) -> str:
        """The archive path of the ensemble's own model configuration."""
        return f"{self.spec.name}/{CONFIGURATION}"

    def files(self, code_roots: tuple[Path, ...]) -> dict[str, Path | str]:
        """Files by archive path, a text as it stands. Raises InputRefused."""
        files: dict[str, Path | str] = {}
        digests: dict[str, str] = {}
        for name, archive in self.archives.items():
            for path, digest in archive.manifest.files.items():
                if digests.setdefault(path, digest) != digest:
                    raise InputRefused(
                        f"{path} of {name} is another file than that of the other steps; give both "
                        "models the same plugin, or rename one."
                    )
                is_check = Path(path).name == MANIFEST_CHECK
                files[path] = (
                    backend_file(code_roots, MANIFEST_CHECK) if is_check else archive.folder / path
                )
            files[_manifest_file(name)] = archive.folder / MANIFEST_NAME
        files[f"{self.spec.name}/1/ensemble.txt"] = ENSEMBLE
        steps = (EnsembleStep(step.model, step.inputs, step.outputs) for step in self.chain.steps)
        message = ensemble_of_steps(self.max_batch_size, self.inputs, self.outputs, steps)
        return files | {self.configuration_file: text(message)}

    def _images(self) -> Iterator[str]:
        """Yield the inputs that a step reads as image files."""
        for step in self.chain.steps:
            manifest = self.archives[step.model].manifest
            if manifest.image_processor is not None and manifest.preprocessing is None:
                names = {record.name for record in self.inputs}
                yield from (tensor for _, tensor in step.inputs if tensor in names)


def ensemble_of(spec: EnsembleSpec, archives: Mapping[str, EngineArchive]) -> Ensemble:
    """Return the ensemble of a model file and its steps' archives. Raises InputRefused."""
    _refuse_other_runtimes(spec, archives)
    interfaces = {
        name: Interface(inputs=archive.manifest.inputs, outputs=archive.manifest.outputs)
        for name, archive in archives.items()
    }
    for problem in chain_problems(spec.steps, spec.outputs, interfaces):
        allowed = "" if problem.allowed is None else f"; allowed: {problem.allowed}"
        value = "" if problem.value is None else f" {problem.value!r}"
        raise InputRefused(
            f"models/{spec.name}.yaml: {problem.what}{value}{allowed}; {problem.way_out}."
        )
    return Ensemble(spec=spec, archives=archives, chain=chain(spec.steps, spec.outputs, interfaces))


def _refuse_other_runtimes(spec: EnsembleSpec, archives: Mapping[str, EngineArchive]) -> None:
    found = {
        name: (
            archive.manifest.platform,
            archive.manifest.runtime,
            archive.manifest.compute_capability,
        )
        for name, archive in archives.items()
    }
    if len(set(found.values())) > 1:
        listing = "; ".join(
            f"{name}: {platform}, {runtime.name} {runtime.version}, compute capability {capability}"
            for name, (platform, runtime, capability) in found.items()
        )
        raise InputRefused(
            f"the steps of {spec.name} were built for different servers: {listing}; build them "
            "again for one."
        )


def _manifest_file(step: str) -> str:
    """At the root, where both modes of Triton's SageMaker front end leave files alone."""
    return f"manifest-{step}.json"
