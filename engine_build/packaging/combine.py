"""One archive of several.

The engines of one network for different compute capabilities, and Triton picks by the GPU.

`python -m engine_build.packaging.combine ARCHIVE ARCHIVE ... --out FILE`. The engines' files are
told apart by their compute
capability (`model_86.plan`), `cc_model_filenames` names them, everything else is as published; no
default file is left, so that
a GPU without an engine is refused by name instead of given another's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from engine_build.errors import BuildError, InputRefused
from engine_build.options import Parser
from engine_build.packaging.archive import MANIFEST_CHECK, model_repository, pack
from engine_build.packaging.combine_rules import check_combinable
from engine_build.packaging.engine_archive import EngineArchive, read_engine_archive
from engine_build.packaging.model_configuration import CONFIGURATION
from engine_build.packaging.pbtxt import entry, text
from engine_build.store import sha256_of
from onboarding.combined_manifest import CombinedEngine, CombinedManifest
from onboarding.manifest import MANIFEST_NAME

DEFAULT_FILE = text([("default_model_filename", "model.plan")])


@dataclass(frozen=True, kw_only=True)
class Combined:
    """A written archive: its manifest, digest and size."""

    manifest: CombinedManifest
    sha256: str
    size_bytes: int


def combine_archives(archives: Sequence[Path], out: Path) -> Combined:
    """Writes one archive of several; their order does not matter. Raises InputRefused."""
    with tempfile.TemporaryDirectory() as scratch:
        found = [
            read_engine_archive(path, Path(scratch) / str(index))
            for index, path in enumerate(archives)
        ]
        check_combinable(found)
        ordered = sorted(found, key=lambda item: _number(item.manifest.compute_capability))
        folder = Path(scratch) / "combined"
        digests = model_repository(folder, files(ordered))
        manifest = combined_manifest(ordered, digests)
        (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
        _write(folder, out)
    return Combined(manifest=manifest, sha256=sha256_of(out), size_bytes=out.stat().st_size)


def _write(folder: Path, out: Path) -> None:
    """Whole or not at all."""
    part = out.with_name(f"{out.name}.part")
    try:
        pack(folder, part)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputRefused(
            f"--out {out} cannot be written: {error.strerror}; give a file in a folder that is "
            "there."
        ) from error


def files(archives: Sequence[EngineArchive]) -> dict[str, Path | str]:
    """What lies where: by archive path, a text as it stands."""
    first = archives[0]
    configuration = f"{_engine_folder(first)}/{CONFIGURATION}"
    shared: dict[str, Path | str] = {
        name: first.folder / name
        for name in first.manifest.files
        if name != first.manifest.engine_file
    }
    shared[configuration] = for_capabilities((first.folder / configuration).read_text(), archives)
    if first.manifest.tokenizer_file is not None and not any(
        Path(name).name == MANIFEST_CHECK for name in shared
    ):
        raise InputRefused(
            f"{first.name}: its tokenizer has no {MANIFEST_CHECK} and reads only one engine; build "
            "the engine again."
        )
    for archive in archives:
        shared[engine_file(archive)] = archive.folder / archive.manifest.engine_file
        shared[manifest_file(archive)] = archive.folder / MANIFEST_NAME
    return shared


def for_capabilities(configuration: str, archives: Sequence[EngineArchive]) -> str:
    """Return the model configuration with a file for each compute capability."""
    if configuration.count(DEFAULT_FILE) != 1:
        raise InputRefused(
            f"{archives[0].name}: its {CONFIGURATION} does not name model.plan; build the engine "
            "again."
        )
    named = [
        entry(archive.manifest.compute_capability, Path(engine_file(archive)).name)
        for archive in archives
    ]
    return configuration.replace(
        DEFAULT_FILE, text([("cc_model_filenames", item) for item in named])
    )


def combined_manifest(
    archives: Sequence[EngineArchive], digests: dict[str, str]
) -> CombinedManifest:
    """The manifest of them all; what they share is taken of the first."""
    first = archives[0].manifest
    engines = {
        archive.manifest.compute_capability: CombinedEngine(
            engine_key=archive.manifest.engine_key,
            manifest=manifest_file(archive),
            engine_file=engine_file(archive),
        )
        for archive in archives
    }
    shared = {
        field: getattr(first, field)
        for field in CombinedManifest.model_fields
        if field in type(first).model_fields
    }
    own = {
        "format_version": 2,
        "compute_capability": ", ".join(engines),
        "engine_file": None,
        "files": digests,
    }
    return CombinedManifest(**(shared | own), engines=engines)


def engine_file(archive: EngineArchive) -> str:
    """Where an engine lies among several."""
    path = Path(archive.manifest.engine_file)
    return str(
        path.with_stem(f"{path.stem}_{archive.manifest.compute_capability.replace('.', '')}")
    )


def manifest_file(archive: EngineArchive) -> str:
    """Where an engine's own manifest lies.

    At the root, where both modes of Triton's SageMaker front end leave files alone.
    """
    return f"manifest-{archive.manifest.compute_capability}.json"


def _engine_folder(archive: EngineArchive) -> str:
    return Path(archive.manifest.engine_file).parts[0]


def _number(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


def main(arguments: Sequence[str], stdout: TextIO, stderr: TextIO) -> int:
    """0: written; otherwise as in errors.py."""
    parser = Parser(
        prog="python -m engine_build.packaging.combine", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "archives",
        nargs="+",
        type=Path,
        metavar="ARCHIVE",
        help="published model.tar.gz of one network",
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="the archive to write"
    )
    try:
        parsed = parser.parse_args(arguments)
        print(
            "\n".join(_report(combine_archives(parsed.archives, parsed.out), parsed)), file=stdout
        )
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    return 0


def _report(written: Combined, parsed: argparse.Namespace) -> list[str]:
    manifest = written.manifest
    return [
        f"{parsed.out}: {manifest.model} on {manifest.platform}, compute capability "
        f"{manifest.compute_capability}",
        f"  {written.size_bytes / 1e6:.1f} MB, sha256 {written.sha256}",
        f"  ROUNDHOUSE_MANIFEST_SHA256={manifest.sha256()}",
    ]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout, sys.stderr))
