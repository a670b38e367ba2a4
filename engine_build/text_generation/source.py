"""The source of a text generator on this machine's disk: fetched, checked, and a checkpoint.

Nothing in it is executed, unless the model file trusts the code of a pinned commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import SourceFault
from engine_build.sources.checkpoint import read_json
from engine_build.sources.hub import Repository
from engine_build.sources.source import FetchContext, fetch_folder, source_name
from engine_build.store import link_or_copy
from onboarding.checkpoint import checkpoint_sha256
from onboarding.text_generation.checkpoint import (
    SAFETENSORS,
    Checkpoint,
    CheckpointError,
    pickle_fault,
    read_folder,
)
from onboarding.text_generation.spec import GenerationSourceSpec
from onboarding.text_generation.weights import mismatches

GGUF = ".gguf"
SERVED = (
    "config.json", "generation_config.json", "model.safetensors", "model-*.safetensors",
    "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
    "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json",
)  # fmt: skip
"""Files of a checkpoint that a server reads; no pickles, no copies in other formats."""
CODE = "*.py"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
TEMPLATES = ("chat_template.jinja", "chat_template.json")


@dataclass(frozen=True, kw_only=True)
class FetchedSource:
    """A checkpoint that transformers loads, its headers, and the digest of its files."""

    folder: Path
    checkpoint: Checkpoint
    sha256: str
    trusts_code: bool

    def file_names(self) -> tuple[str, ...]:
        """Return the files that a server reads, and code where it is trusted."""
        patterns = (*SERVED, CODE) if self.trusts_code else SERVED
        names = {path.name for pattern in patterns for path in self.folder.glob(pattern)}
        return tuple(sorted(names))


def fetch(source: GenerationSourceSpec, fetching: FetchContext) -> FetchedSource:
    """Fetch the source that a model file pins, and refuse what cannot be served.

    Raises SourceFault.
    """
    patterns = (*SERVED, *((CODE,) if source.trust_remote_code else ()))
    folder, name = fetch_folder(source, fetching, patterns), source_name(source)
    if source.huggingface is not None:
        _refuse_pickles(source, folder, fetching.repository(source.huggingface))
    refuse_unsafe(folder, name, trusts_code=source.trust_remote_code)
    return FetchedSource(
        folder=folder,
        checkpoint=check_headers(folder, name),
        sha256=checkpoint_sha256(folder),
        trusts_code=source.trust_remote_code,
    )


def refuse_unsafe(folder: Path, name: str, *, trusts_code: bool) -> None:
    """Refuse code without trust, and a missing tokenizer or chat template. Raises SourceFault."""
    try:
        config, tokenizer = (
            read_json(folder / file, {}) for file in ("config.json", "tokenizer_config.json")
        )
    except SourceFault as error:
        raise SourceFault(f"{name}: {error}") from error
    if not trusts_code and "auto_map" in config:
        raise SourceFault(
            f"{name} needs code of its repository (config.json names auto_map); read that code, "
            "pin the commit and write `trust_remote_code: true`, or choose a model that "
            "transformers knows."
        )
    if not any((folder / file).is_file() for file in TOKENIZERS):
        raise SourceFault(
            f"{name} has no tokenizer ({', '.join(TOKENIZERS)}); save it into the folder with "
            "transformers."
        )
    if "chat_template" not in tokenizer and not any((folder / t).is_file() for t in TEMPLATES):
        raise SourceFault(
            f"{name} has a tokenizer without chat template, so that it cannot answer chat "
            "messages; choose the model's instruct version, or add chat_template.jinja."
        )


def check_headers(folder: Path, name: str) -> Checkpoint:
    """Return a checkpoint's config and headers. Raises SourceFault for one that is not whole."""
    try:
        checkpoint = read_folder(folder)
    except CheckpointError as error:
        raise SourceFault(f"{name}: {error.what}; {error.way_out}.") from error
    problem = mismatches(checkpoint)
    if problem is not None:
        raise SourceFault(
            f"{name}: config.json and the tensors disagree: {problem}; fetch or save both from "
            "one revision."
        )
    return checkpoint


def _refuse_pickles(source: GenerationSourceSpec, folder: Path, repository: Repository) -> None:
    """Say of a repository without weights what it has in their place, which is not downloaded."""
    if any(folder.glob(f"*{SAFETENSORS}")):
        return
    inside = "" if source.path is None else f"{source.path.strip('/')}/"
    found = [name for name in repository.file_names() if name.startswith(inside)]
    fault = pickle_fault(name.removeprefix(inside) for name in found)
    if fault is not None:
        raise SourceFault(f"{source_name(source)} {fault.what}; {fault.way_out}.")
    gguf = next((name for name in found if name.endswith(GGUF)), None)
    if gguf is not None:
        raise SourceFault(
            f"{source_name(source)} keeps weights in {gguf}; name the model's repository in "
            "safetensors, or convert the file: transformers' from_pretrained(gguf_file=…) and "
            "save_pretrained()."
        )


def copy_served(source: FetchedSource, folder: Path) -> None:
    """Link or copy the files that a server reads into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in source.file_names():
        link_or_copy(source.folder / name, folder / name)
