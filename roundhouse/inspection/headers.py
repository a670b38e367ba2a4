"""Headers of a text generator's checkpoint, read in parts: no tensor is fetched."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from onboarding.dataset import is_inside
from onboarding.fault import FaultsError
from onboarding.text_generation.checkpoint import (
    CONFIGURATION,
    INDEX,
    LENGTH_BYTES,
    SINGLE,
    Checkpoint,
    CheckpointError,
    TensorHeader,
    has_chat_template,
    header_bytes,
    index_shards,
    parse_header,
    pickle_fault,
    read_folder,
)
from onboarding.text_generation.spec import GenerationSourceSpec
from onboarding.tree import Tree, read_tree
from roundhouse.aws.clients import Clients, aws_clients
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.inspection.source_files import SourceFiles, bucket_files, hub_files
from roundhouse.paths import Paths
from roundhouse.settings import inherited

PYTHON = ".venvs/quantizer/bin/python"
PROGRAM = "engine_build.text_generation.headers"


@dataclass(frozen=True, kw_only=True)
class Headers:
    """What was written: `line` is what the model file lacks, as `key: value` of a section."""

    file: Path
    checkpoint: Checkpoint
    line: str | None


def write_headers(paths: Paths, name: str) -> Headers:
    """Write the headers of a text generator's checkpoint.

    Raises UsageError, RoundhouseError; NotReadyError where a source cannot be reached.
    """
    tree = read_tree(paths.tree)
    file, source = headers_path(tree, name), source_of(tree, name)
    if source.checkpoint is not None and "://" not in source.checkpoint:
        found = folder_headers(paths.tree / source.checkpoint / (source.path or ""))
    elif source.python_package is not None:
        raise UsageError(package_command(name, source, file))
    else:
        region = next((spec.region for spec in tree.environments.values()), "us-east-1")
        found = fetch_headers(open_files(source, aws_clients(region), dict(inherited())))
    place = paths.tree / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(found.document(), encoding="utf-8")
    line = None
    if source.headers is None:
        line = f"`headers: {file}` to `source` of models/{name}.yaml"
    return Headers(file=file, checkpoint=found, line=line)


def headers_path(tree: Tree, name: str) -> Path:
    """Return where a model's headers file lies: what the model file says, or models/data/.

    Raises UsageError.
    """
    generators = {
        model: file.spec for view in tree.views.values() for model, file in view.generators.items()
    }
    if name not in generators:
        own = [fault for fault in tree.faults if fault.file == f"models/{name}.yaml"]
        if own:
            raise FaultsError(own)
        known = ", ".join(sorted(generators)) or "none"
        raise UsageError(f"{name}: is no text-generation model of the tree; there are: {known}.")
    default = f"models/data/{name}.headers.json"
    path = generators[name].source.headers or default
    if not is_inside(tree.root, path):
        raise UsageError(
            f"{name}: source.headers {path} lies outside the onboarding root; name a file under "
            f"it, such as {default}."
        )
    return Path(path)


def source_of(tree: Tree, name: str) -> GenerationSourceSpec:
    """Return a text generator's source, as some environment has it."""
    return next(
        view.generators[name].spec.source for view in tree.views.values() if name in view.generators
    )


def open_files(
    source: GenerationSourceSpec, clients: Clients, variables: dict[str, str]
) -> SourceFiles:
    """Return the files of a source on the hub or in S3. Raises RoundhouseError."""
    if source.huggingface is not None:
        return hub_files(source.huggingface, source.path, variables)
    if source.checkpoint is not None and "://" in source.checkpoint:
        return bucket_files(source.checkpoint, clients)
    raise UsageError("Headers are read in parts of Hugging Face repositories and prefixes in S3.")


def fetch_headers(files: SourceFiles) -> Checkpoint:
    """Return a checkpoint's config.json and headers. Raises RoundhouseError for one not whole."""
    try:
        pickles = pickle_fault(files.names)
        if pickles is not None:
            raise pickles
        config = json.loads(_whole(files, CONFIGURATION))
        if not isinstance(config, dict):
            raise ValueError
        shards = (
            index_shards(_whole(files, INDEX)) if INDEX in files.names else {SINGLE: frozenset()}
        )
        tensors: dict[str, TensorHeader] = {}
        for name, expected in shards.items():
            header = parse_header(name, _beginning(files, name))
            if expected - header.keys():
                tensor = min(expected - header.keys())
                raise CheckpointError(
                    f"{name} has no tensor {tensor}, which {INDEX} places there",
                    "save the checkpoint again",
                )
            tensors |= header
    except CheckpointError as error:
        raise RoundhouseError(f"{files.title}: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise RoundhouseError(f"{files.title}: {CONFIGURATION} is no JSON object.") from error
    return Checkpoint(
        config=config,
        tensors=tensors,
        has_chat_template=has_chat_template(files.names, files.read),
    )


def package_command(name: str, source: GenerationSourceSpec, file: Path) -> str:
    """Return what a person runs for the headers of a package.

    Packages are fetched, and a GGUF file converted, by the quantizer, in its environment.
    """
    document = source.model_dump_json(exclude_none=True, exclude={"headers"})
    words = (PYTHON, "-m", PROGRAM, "--source", document, "--out", str(file))
    return (
        f"{name}: the quantizer reads packages; `python -m roundhouse.dev.environments quantizer` "
        f"makes its environment, and this writes the headers: {shlex.join(words)}"
    )


def folder_headers(folder: Path) -> Checkpoint:
    """Return the headers of a folder. Raises RoundhouseError."""
    try:
        return read_folder(folder)
    except CheckpointError as error:
        raise RoundhouseError(f"{folder.name}: {error}.") from error


def _beginning(files: SourceFiles, name: str) -> bytes:
    if files.read_range is None or name not in files.names:
        raise CheckpointError(f"{name} is missing", "add the file, or save the checkpoint again")
    first = files.read_range(name, 0, LENGTH_BYTES)
    return first + files.read_range(name, LENGTH_BYTES, header_bytes(name, first))


def _whole(files: SourceFiles, name: str) -> bytes:
    content = files.read(name)
    if content is None:
        raise CheckpointError(f"has no {name}", "save it with transformers")
    return content
