"""A plan that an earlier build compiled, judged and timed, out of the archive of its engine.

Engines of one plan key differ in packaging alone. A plan lies in every archive that was made of it,
so no store keeps it twice. The archive names the plan's key in a file that its manifest lists: its
digest in the lock and its signature vouch for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import InputRefused
from engine_build.packaging.archive import EngineArchive, known_engine, read_engine_archive
from engine_build.request import BuildContext, BuildRequest
from engine_build.store import Store, sha256_of
from onboarding.manifest import MANIFEST_NAME, Manifest
from onboarding.names import ARCHIVE_NAME, ENGINES_PREFIX, engine_archive_path
from onboarding.plan_source import NOT_REUSED, PlanSource, is_of_plan
from onboarding.signature import SignatureFault, parse_public_key, verify_envelope

COMPILES = "`roundhouse build` compiles the plan"


@dataclass(frozen=True, kw_only=True)
class ReusedPlan:
    """An unpacked archive of another engine with the same plan."""

    archive: EngineArchive
    sha256: str
    """Of the archive."""

    @property
    def manifest(self) -> Manifest:
        """What was measured of the plan, and who compiled it."""
        return self.archive.manifest

    @property
    def engine(self) -> Path:
        """The plan, or the network for ONNX Runtime; a data file lies beside it."""
        return self.archive.folder / self.manifest.engine_file


def find_plan(context: BuildContext) -> ReusedPlan | None:
    """Return the plan of the engine that the build names; None where it names none.

    Raises InputRefused where that engine cannot be used.
    """
    source = context.plan_source
    if source is None:
        return None
    if context.request.plan_key is None:
        raise InputRefused(
            f"{context.request.model.name} is an ensemble, which has no plan of its own; leave "
            "--plan-from out."
        )
    try:
        return _verified_plan(context, context.destination, source)
    except InputRefused as error:
        raise InputRefused(
            f"the plan of engine {source.engine_key} {NOT_REUSED}: {error}"
        ) from error


def _verified_plan(context: BuildContext, store: Store, source: PlanSource) -> ReusedPlan:
    request, key = context.request, source.engine_key
    intent = f"plan {request.plan_key} of engine {key} in {store.place}; nothing is compiled"
    with context.log.step("reuse", intent):
        entry = known_engine(store, key)
        if entry is None:
            raise InputRefused(f"that engine is not in {store.place}; {COMPILES}.")
        packed = context.work.scratch("reused") / ARCHIVE_NAME
        store.download(engine_archive_path(key), packed)
        sha256 = sha256_of(packed)
        if sha256 != (entry.archive.sha256 if source.sha256 is None else source.sha256):
            raise InputRefused(
                f"{store.place}/{engine_archive_path(key)} is not the archive that its lock names; "
                f"delete {ENGINES_PREFIX}/{key}/ there; {COMPILES}."
            )
        archive = read_engine_archive(packed, context.work.scratch("reused-archive"))
        _refuse_unsigned(archive, request)
        _refuse_other_plan(archive.manifest, request)
    return ReusedPlan(archive=archive, sha256=sha256)


def _refuse_unsigned(archive: EngineArchive, request: BuildRequest) -> None:
    signers = [parse_public_key(signer) for signer in request.trusted_signers]
    try:
        if signers:
            verify_envelope(archive.folder, sha256_of(archive.folder / MANIFEST_NAME), signers)
    except SignatureFault as fault:
        raise InputRefused(
            f"{fault}; name its signer in `trusted_signers` of the environment file, or delete the "
            "engine and build."
        ) from fault


def _refuse_other_plan(manifest: Manifest, request: BuildRequest) -> None:
    """Compare the plan's key that the archive names: a lock's, which nobody signs, is no proof."""
    assert request.plan_key is not None
    if not is_of_plan(manifest, request.plan_key):
        raise InputRefused(
            f"its archive names another plan than {request.plan_key}, or none, as archives of "
            f"before do; {COMPILES}."
        )
