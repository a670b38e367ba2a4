"""One archive of several: one network's engines for several GPUs, of which Triton picks.

`python -m engine_build.packaging.combine ARCHIVE ARCHIVE ... --out FILE`. The engines' files are
told apart by their compute capability (`model_86.plan`), `cc_model_filenames` names them, and
everything else is as published, but for the signatures, which are of one engine each. No default
file is left, so that a GPU without an engine is refused by name instead of given another's.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from engine_build.errors import BuildError, InputRefused
from engine_build.options import Parser
from engine_build.packaging.archive import MANIFEST_CHECK, model_repository, pack
from engine_build.packaging.engine_archive import EngineArchive, read_engine_archive
from engine_build.packaging.model_configuration import CONFIGURATION
from engine_build.packaging.pbtxt import entry, text
from engine_build.store import sha256_of
from onboarding.combined_manifest import CombinedEngine, CombinedManifest
from onboarding.manifest import MANIFEST_NAME

DEFAULT_FILE = text([("default_model_filename", "model.plan")])
SHARED = {
    "model": "the model",
    "platform": "the serving platform",
    "runtime": "the TensorRT build",
    "task": "the task",
    "network_keys": "the network",
    "inputs": "the inputs",
    "outputs": "the outputs",
    "labels": "the class names",
    "activation": "the activation function",
    "optimization_profiles": "the optimization profiles",
    "max_batch_size": "the largest batch",
    "warm_up": "the warm-up",
    "auto_truncate": "whether long texts are cut",
    "prompts": "the prompts",
    "preprocessing": "the preprocessing",
    "postprocessing": "the postprocessing",
    "tokenizer_file": "the tokenizer's place",
}
"""Fields of manifests that must agree, in the order in which a difference is reported.

Precision may differ: `auto` decides a GPU.
"""
MEANINGS = (
    ("tokenizer.json", "another tokenizer"),
    ("config.pbtxt", "other dynamic batching, instances, graphs or warm-ups"),
    (".py", "code of another version of roundhouse"),
    ("", "another file"),
)


def combine_archives(archives: Sequence[Path], out: Path) -> CombinedManifest:
    """Writes one archive of several; their order does not matter. Raises InputRefused."""
    with tempfile.TemporaryDirectory() as scratch:
        engines = [
            read_engine_archive(path, Path(scratch) / str(index))
            for index, path in enumerate(archives)
        ]
        for fault in combination_faults(engines):
            raise InputRefused(f"{fault}.")
        engines.sort(key=lambda engine: tuple(map(int, _capability(engine).split("."))))
        folder = Path(scratch) / "combined"
        manifest = _manifest(engines, model_repository(folder, _files(engines)))
        (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
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
    return manifest


def combination_faults(archives: Sequence[EngineArchive]) -> Iterator[str]:
    """Say why archives cannot be combined; clients must see one model, whatever GPU answers."""
    if len(archives) < 2:
        count = f"{len(archives)} archive is given"
        yield f"{count}; give two or more, each for another compute capability"
    yield from _capability_faults(archives)
    for other in archives[1:]:
        for field, meaning in SHARED.items():
            first, second = getattr(archives[0].manifest, field), getattr(other.manifest, field)
            if first != second:
                yield (
                    f"{archives[0].name} and {other.name} disagree on {meaning}: {_short(first)} "
                    f"and {_short(second)}; build both from one spec"
                )
    for other in archives[1:]:
        files = archives[0].files.items() ^ other.files.items()
        for name in sorted({name for name, _ in files}):
            meaning = next(text for end, text in MEANINGS if name.endswith(end))
            yield (
                f"{name} differs between {archives[0].name} and {other.name}: {meaning}; build "
                "both from one spec"
            )


def _capability_faults(archives: Sequence[EngineArchive]) -> Iterator[str]:
    for index, archive in enumerate(archives):
        if archive.manifest.runtime.name != "tensorrt":
            yield (
                f"{archive.name} holds a CPU engine, which Triton does not choose by compute "
                "capability; give TensorRT engines"
            )
        for other in archives[:index]:
            if _capability(other) == _capability(archive):
                yield (
                    f"{other.name} and {archive.name} are both for compute capability "
                    f"{_capability(archive)}; give one of them"
                )


def _files(archives: Sequence[EngineArchive]) -> dict[str, Path | str]:
    """Files by archive path, a text as it stands; what they share is the first one's."""
    first = archives[0]
    files: dict[str, Path | str] = {name: first.folder / name for name in first.files}
    has_check = any(Path(name).name == MANIFEST_CHECK for name in files)
    if first.manifest.tokenizer_file is not None and not has_check:
        raise InputRefused(
            f"{first.name}: its tokenizer has no {MANIFEST_CHECK} and reads only one engine; build "
            "the engine again."
        )
    configuration = f"{Path(first.manifest.engine_file).parts[0]}/{CONFIGURATION}"
    before = (first.folder / configuration).read_text()
    if before.count(DEFAULT_FILE) != 1:
        raise InputRefused(
            f"{first.name}: its {CONFIGURATION} does not name model.plan; build the engine again."
        )
    names = [
        ("cc_model_filenames", entry(_capability(archive), Path(_engine_file(archive)).name))
        for archive in archives
    ]
    files[configuration] = before.replace(DEFAULT_FILE, text(names))
    for archive in archives:
        files[_engine_file(archive)] = archive.folder / archive.manifest.engine_file
        files[_manifest_file(archive)] = archive.folder / MANIFEST_NAME
    return files


def _manifest(archives: Sequence[EngineArchive], digests: dict[str, str]) -> CombinedManifest:
    first = archives[0].manifest
    engines = {
        _capability(archive): CombinedEngine(
            engine_key=archive.manifest.engine_key,
            manifest=_manifest_file(archive),
            engine_file=_engine_file(archive),
        )
        for archive in archives
    }
    shared = CombinedManifest.model_fields.keys() & type(first).model_fields.keys()
    fields = {field: getattr(first, field) for field in shared} | {
        "format_version": 2,
        "compute_capability": ", ".join(engines),
        "engine_file": None,
        "files": digests,
    }
    return CombinedManifest(**fields, engines=engines)


def _capability(archive: EngineArchive) -> str:
    return archive.manifest.compute_capability


def _engine_file(archive: EngineArchive) -> str:
    path = Path(archive.manifest.engine_file)
    return str(path.with_stem(f"{path.stem}_{_capability(archive).replace('.', '')}"))


def _manifest_file(archive: EngineArchive) -> str:
    """At the root, where both modes of Triton's SageMaker front end leave files alone."""
    return f"manifest-{_capability(archive)}.json"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def main(arguments: Sequence[str], stdout: TextIO, stderr: TextIO) -> int:
    """0: written; otherwise as in errors.py."""
    program = "python -m engine_build.packaging.combine"
    parser = Parser(prog=program, description=__doc__, allow_abbrev=False)
    archive = "published model.tar.gz of one network"
    parser.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE", help=archive)
    out = "the archive to write"
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help=out)
    try:
        parsed = parser.parse_args(arguments)
        manifest = combine_archives(parsed.archives, parsed.out)
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    capability = f"compute capability {manifest.compute_capability}"
    size, digest = parsed.out.stat().st_size / 1e6, sha256_of(parsed.out)
    print(f"{parsed.out}: {manifest.model} on {manifest.platform}, {capability}", file=stdout)
    print(f"  {size:.1f} MB, sha256 {digest}", file=stdout)
    print(f"  ROUNDHOUSE_MANIFEST_SHA256={manifest.sha256()}", file=stdout)
    print("  not signed: endpoints that name `trusted_signers` refuse it", file=stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout, sys.stderr))
