"""Headers of a text generator's checkpoint, read in parts: no tensor is fetched."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from onboarding.tree import Tree
from roundhouse.aws.clients import Clients
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.inspection.hub import hub_files
from roundhouse.inspection.source_files import SourceFiles, bucket_parts

Reader = Callable[[GenerationSourceSpec], SourceFiles]


def headers_path(tree: Tree, name: str, *, draft: bool = False) -> Path:
    """Return where a model's headers file lies: what the model file says, or models/data/.

    `draft`: that of its draft model. Raises UsageError.
    """
    generators = {
        model: file.spec
        for view in tree.views.values()
        for model, file in view.generators.items()
        if "source" in file.sections
    }
    if name not in generators:
        own = [fault for fault in tree.faults if fault.file == f"models/{name}.yaml"]
        if own:
            raise FaultsError(own)
        known = ", ".join(sorted(generators)) or "none"
        raise UsageError(f"{name}: is no text-generation model of the tree; there are: {known}.")
    spec = generators[name]
    key, default = "source.headers", f"models/data/{name}.headers.json"
    named = spec.source.headers
    if draft:
        key, default = "serving.speculative.headers", f"models/data/{name}.draft.headers.json"
        guess = spec.serving.speculative
        if guess is None or guess.model is None:
            raise UsageError(f"{name}: names no draft model; add serving.speculative.model.")
        named = guess.headers
    path = named or default
    if not is_inside(tree.root, path):
        raise UsageError(
            f"{name}: {key} {path} lies outside the onboarding root; name a file under it, such as "
            f"{default}."
        )
    return Path(path)


def source_of(tree: Tree, name: str, *, draft: bool = False) -> GenerationSourceSpec:
    """Return a text generator's source, or its draft model's, as some environment has it."""
    spec = next(
        view.generators[name].spec for view in tree.views.values() if name in view.generators
    )
    guess = spec.serving.speculative
    if not draft or guess is None:
        return spec.source
    return GenerationSourceSpec(huggingface=guess.model, headers=guess.headers)


def open_files(
    source: GenerationSourceSpec, clients: Clients, variables: dict[str, str]
) -> SourceFiles:
    """Return the files of a source on the hub or in S3. Raises RoundhouseError."""
    if source.huggingface is not None:
        return hub_files(source.huggingface, source.path, variables)
    if source.checkpoint is not None and "://" in source.checkpoint:
        return bucket_parts(source.checkpoint, clients)
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
