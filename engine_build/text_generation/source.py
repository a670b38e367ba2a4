"""The source of a text generator on this machine's disk: fetched, checked, and a checkpoint.

Nothing in it is executed, unless the model file trusts the code of a pinned commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import SourceFault, one_line
from engine_build.sources.checkpoint import read_json
from engine_build.sources.source import FetchContext, Repository, fetch_folder, source_name
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
CHECKPOINT_OR_GGUF = ("config.json", f"*{GGUF}")
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
    patterns = (*SERVED, f"*{GGUF}", *((CODE,) if source.trust_remote_code else ()))
    given = fetch_folder(source, fetching, patterns, CHECKPOINT_OR_GGUF)
    if source.huggingface is not None:
        _refuse_pickles(source, given, fetching.repository(source.huggingface))
    file, folder, name = _gguf_file(given), given, source_name(source)
    if file is not None:
        folder = fetching.folder / "converted"
        _dequantize(file, folder)
    refuse_unsafe(folder, name, trusts_code=source.trust_remote_code)
    return FetchedSource(
        folder=folder,
        checkpoint=check_headers(folder, name),
        sha256=checkpoint_sha256(given),
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
    """Say of a repository without weights that it has pickles, which are not downloaded."""
    if {path.suffix for path in folder.glob("*")} & {SAFETENSORS, GGUF}:
        return
    inside = "" if source.path is None else f"{source.path.strip('/')}/"
    names = (name for name in repository.file_names() if name.startswith(inside))
    fault = pickle_fault(name.removeprefix(inside) for name in names)
    if fault is not None:
        raise SourceFault(f"{source_name(source)} {fault.what}; {fault.way_out}.")


def _gguf_file(folder: Path) -> Path | None:
    """Return the GGUF file of a folder that holds no checkpoint. Raises SourceFault for several."""
    files = sorted(folder.glob(f"*{GGUF}"))
    if not files or (folder / "config.json").is_file():
        return None
    if len(files) > 1:
        raise SourceFault(
            f"the source holds {len(files)} GGUF files ({files[0].name}, {files[1].name}); name a "
            "folder with one as `path`."
        )
    return files[0]


def _dequantize(file: Path, target: Path) -> None:
    """Convert a GGUF file to a checkpoint in BF16, by transformers. Raises SourceFault."""
    import torch
    import transformers

    try:
        options = {"gguf_file": file.name, "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            dtype=torch.bfloat16,
            quantization_config=transformers.GgufConfig(dequantize=True),
            **options,
        )
        # It would name the GGUF file as the format of weights that are plain now.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(str(target))
        tokenizer.save_pretrained(str(target))
    except Exception as error:
        raise SourceFault(
            f"{file.name} cannot be converted ({one_line(error)}); choose an architecture that "
            "transformers reads from GGUF, or name a checkpoint in safetensors."
        ) from error


def copy_served(source: FetchedSource, folder: Path) -> None:
    """Link or copy the files that a server reads into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in source.file_names():
        link_or_copy(source.folder / name, folder / name)
