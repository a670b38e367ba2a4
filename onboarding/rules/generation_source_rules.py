"""Rules of a text generator's checkpoint, quantization and LoRA adapters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from onboarding.checkpoint import checkpoint_sha256
from onboarding.dataset import is_inside
from onboarding.document import KeyPath, Place
from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.rules.generation_case import GenerationCase
from onboarding.rules.rule import rule
from onboarding.rules.source_rules import REPOSITORY, SHA256, kind_faults, pin_faults
from onboarding.starter_texts import evaluation_path
from onboarding.text_generation.adapter import (
    Adapter,
    adapter_problem,
    architecture_without_adapters,
    read_adapter,
)
from onboarding.text_generation.checkpoint import CheckpointError
from onboarding.text_generation.kv_cache import ArchitectureError, cache_layers
from onboarding.text_generation.platforms import quantization_methods
from onboarding.text_generation.spec import AdapterSpec
from onboarding.text_generation.task_file import TaskFileError, least_drop, read_task_file
from onboarding.text_generation.texts import (
    ENOUGH_SAMPLES,
    KINDS,
    TextsError,
    read_texts,
    shared_line,
)
from onboarding.text_generation.weights import mismatches

SOURCES = ("huggingface", "python_package", "checkpoint")
LARGEST_DIGEST_BYTES = 256 << 20
"""Folders above it are not read whole by `check`, which is to answer within two seconds."""
S3_FOLDER = re.compile(r"s3://[^/]+/.+/")


@rule("source")
def generator_source_is_named_once(case: GenerationCase) -> Iterator[Fault]:
    """Exactly one of the three kinds of source."""
    yield from kind_faults(case.document, case.spec.source, SOURCES)


@rule("source")
def generator_source_is_pinned(case: GenerationCase) -> Iterator[Fault]:
    """A branch, a version range or a folder without digest may change."""
    source = case.spec.source
    yield from pin_faults(case.document, source)
    if source.checkpoint is not None and source.sha256 is None:
        yield case.document.at("source", "checkpoint").fault(
            "unpinned source: 'source.checkpoint' needs 'source.sha256'",
            value=source.checkpoint,
            way_out="add the digest of the folder's sorted `sha256sum` lines",
        )


@rule("source")
def remote_code_is_of_a_pinned_commit(case: GenerationCase) -> Iterator[Fault]:
    """Code of a repository runs with the endpoint's rights, so it must be code that was read."""
    source = case.spec.source
    pinned = REPOSITORY.fullmatch(source.huggingface or "")
    if source.trust_remote_code and not pinned:
        yield case.document.at("source", "trust_remote_code").fault(
            "'source.trust_remote_code' runs code of a source without a pinned commit",
            value="true",
            allowed="source.huggingface: owner/name@<40 hex digits>",
            way_out="pin the commit whose code you read, or take the line out",
        )


@rule("source")
def generator_checkpoint_is_there(case: GenerationCase) -> Iterator[Fault]:
    """A folder of the onboarding tree, or a prefix of S3 that ends in /."""
    given = case.spec.source.checkpoint
    if given is None or S3_FOLDER.fullmatch(given):
        return
    inside = "://" not in given and is_inside(case.root, given)
    if not inside or not (case.root / given).is_dir():
        yield case.document.at("source", "checkpoint").fault(
            "'source.checkpoint' is neither a prefix in S3 nor a folder under the onboarding root",
            value=given,
            allowed="s3://BUCKET/PREFIX/, or a path relative to the onboarding root",
            way_out="end the prefix in /, or copy the checkpoint to one of these",
        )


@rule("source")
def generator_checkpoint_is_whole(case: GenerationCase) -> Iterator[Fault]:
    """Every shard is there, its header can be read, and config.json fits the tensors."""
    key, value = case.headers_source
    place = case.document.at("source", key)
    if isinstance(case.checkpoint, CheckpointError):
        yield place.fault(
            f"'source.{key}': {case.checkpoint.what}", value=value, way_out=case.checkpoint.way_out
        )
    elif case.checkpoint is not None:
        problem = mismatches(case.checkpoint)
        if problem is not None:
            yield place.fault(
                f"'source.{key}': config.json and the tensors disagree: {problem}",
                value=value,
                way_out="fetch or save the checkpoint again, both from one revision",
            )


@rule("source")
def generator_answers_chat_messages(case: GenerationCase) -> Iterator[Fault]:
    """Without a chat template every request with messages is refused."""
    if case.headers is None or case.headers.has_chat_template is not False:
        return
    key, value = case.headers_source
    yield case.document.at("source", key).fault(
        f"'source.{key}': its tokenizer has no chat template, so that it cannot answer messages",
        value=value,
        way_out="choose the model's instruct version, or add chat_template.jinja to the checkpoint",
    )


@rule("source")
def generator_digest_is_the_folders(case: GenerationCase) -> Iterator[Fault]:
    """The digest pins the files; larger folders are compared when they are copied."""
    source = case.spec.source
    folder = case.root / (source.checkpoint or "")
    if source.checkpoint is None or source.sha256 is None or case.headers is None:
        return
    if not is_inside(case.root, source.checkpoint) or not folder.is_dir():
        return
    if case.headers.bytes <= LARGEST_DIGEST_BYTES:
        digest = checkpoint_sha256(folder)
        if digest != source.sha256 and SHA256.fullmatch(source.sha256):
            yield case.document.at("source", "sha256").fault(
                "'source.sha256' is not the checkpoint's digest",
                value=source.sha256,
                allowed=digest,
                way_out="restore the files, or write the digest that they have",
            )


@rule("source")
def cache_of_the_checkpoint_is_known(case: GenerationCase) -> Iterator[Fault]:
    """Layers whose state is no key-value cache cannot be planned for."""
    if case.headers is None:
        return
    try:
        cache_layers(case.headers.text_config)
    except ArchitectureError as error:
        key, _ = case.headers_source
        yield case.document.at("source", key).fault(
            f"'source.{key}': its KV cache cannot be counted: {error}",
            allowed="full, grouped, multi-query, latent and sliding-window attention",
            way_out="choose another checkpoint, or correct its config.json",
        )


@rule("source", "context")
def length_is_within_the_checkpoints(case: GenerationCase) -> Iterator[Fault]:
    """Positions beyond those that a model was trained for give text without sense."""
    if case.headers is None:
        return
    longest = case.headers.text_config.get("max_position_embeddings")
    wanted = case.spec.context.max_model_len
    if isinstance(longest, int) and wanted > longest:
        yield case.document.at("context", "max_model_len").fault(
            "'context.max_model_len' is above the checkpoint's max_position_embeddings",
            value=wanted,
            allowed=f"at most {longest}",
            way_out="lower it, or choose a checkpoint of a longer context",
        )


@rule("source", "quantization")
def quantized_checkpoint_stays_as_it_is(case: GenerationCase) -> Iterator[Fault]:
    """Weights that are quantized already cannot be quantized once more."""
    names = [name for name in case.spec.quantization.schemes if name not in ("bf16", "fp16")]
    if case.headers is not None and case.headers.is_quantized and names:
        yield case.document.at("quantization", "schemes").fault(
            "'quantization.schemes' would quantize a checkpoint that config.json says is "
            "quantized already",
            value=", ".join(names),
            allowed="[bf16]: its weights are served as they are",
            way_out="take the schemes out, or name the checkpoint in 16 bits",
        )


@rule("source", "serving")
def quantization_is_the_engines(case: GenerationCase) -> Iterator[Fault]:
    """The server exits for a checkpoint that is quantized in a way that it does not load."""
    quantization = None if case.headers is None else case.headers.quantization
    known = quantization_methods(case.engine_version)
    if quantization is None or known is None or "quant_method" not in quantization:
        return  # Without one vLLM finds ModelOpt's by its producer.
    method = str(quantization["quant_method"]).lower()
    if method not in known:
        key, value = case.headers_source
        yield case.document.at("source", key).fault(
            f"'source.{key}': config.json names quantization method {method}, which vLLM "
            f"{case.engine_version} does not load",
            value=value,
            allowed=comma_list(known),
            way_out="name the checkpoint in 16 bits, and its format in quantization.schemes",
        )


CALIBRATED = ("int8", "awq", "gptq", "nvfp4", "w4a8-fp8")
"""Schemes whose ranges are set by texts."""
LARGEST_DATASET_BYTES = 64 << 20
"""Larger ones are read when they are used: `check` is to answer within two seconds."""
_CALIBRATION: KeyPath = ("quantization", "calibration", "dataset")
_EVALUATION: KeyPath = ("quantization", "evaluation", "dataset")
_TASK: KeyPath = ("quantization", "budget", "task", "file")


@rule("quantization")
def calibration_is_named(case: GenerationCase) -> Iterator[Fault]:
    """Ranges of some schemes come from texts."""
    quantization = case.spec.quantization
    needy = [name for name in quantization.schemes if name in CALIBRATED]
    if needy and quantization.calibration is None:
        yield case.document.at("quantization", "schemes").fault(
            f"'quantization.calibration' is missing, which {', '.join(needy)} needs",
            way_out="add `calibration: {dataset: models/data/chat.jsonl}`, or leave the scheme out",
        )


@rule("quantization")
def quantization_files_are_there(case: GenerationCase) -> Iterator[Fault]:
    """Texts and task files lie under the onboarding root."""
    for path, file in _files(case).items():
        if not _is_there(case, file):
            yield case.document.at(*path).fault(
                f"'{'.'.join(map(str, path))}' is no file under the onboarding root",
                value=file,
                way_out="add the file, or correct the path",
            )


@rule("quantization")
def quantization_texts_can_be_read(case: GenerationCase) -> Iterator[Fault]:
    """Each line is a text or the messages of a chat, and held-out texts are enough to judge."""
    for path, file in _files(case).items():
        if path == _TASK or not _is_small(case, file):
            continue
        try:
            count = sum(1 for _ in read_texts(case.root / file))
        except TextsError as error:
            where = file if error.line is None else f"{file}:{error.line}"
            yield case.document.at(*path).fault(
                f"'{'.'.join(map(str, path))}' {error.what}", value=where, way_out=error.way_out
            )
            continue
        least = ENOUGH_SAMPLES if path == _EVALUATION else 1
        if count < least:
            yield case.document.at(*path).fault(
                f"'{'.'.join(map(str, path))}' has {count} samples",
                value=file,
                allowed=f"{least} or more, in a file that ends in {', '.join(KINDS)}",
                way_out="add texts",
            )


@rule("quantization")
def evaluation_texts_are_held_out(case: GenerationCase) -> Iterator[Fault]:
    """A checkpoint looks better on the texts that set its ranges than it is."""
    calibration = case.spec.quantization.calibration
    if calibration is None or not _is_small(case, calibration.dataset):
        return
    named = case.spec.quantization.evaluation.dataset
    if named is not None and not _is_small(case, named):
        return
    evaluation = evaluation_path() if named is None else case.root / named
    try:
        shared = shared_line(case.root / calibration.dataset, calibration.samples, evaluation)
    except TextsError:
        return
    if shared is not None:
        yield case.document.at_change(_EVALUATION, _CALIBRATION).fault(
            "'quantization.evaluation' holds texts that 'quantization.calibration' holds too",
            value=f"{named or 'the shipped texts'}, line {shared[0]}, and "
            f"{calibration.dataset}, line {shared[1]}",
            way_out="take the line out of one of the files",
        )


@rule("quantization")
def task_file_can_be_read(case: GenerationCase) -> Iterator[Fault]:
    """A task is prompts with the answers expected."""
    file = _files(case).get(_TASK)
    if file is None or not _is_there(case, file):
        return
    name = f"'{'.'.join(map(str, _TASK))}'"
    try:
        items = len(read_task_file(case.root / file).items)
    except TaskFileError as error:
        what, _, way_out = str(error).rpartition("; ")
        yield case.document.at(*_TASK).fault(f"{name} {what}", value=file, way_out=way_out)
        return
    task, least = case.spec.quantization.budget.task, least_drop(items)
    if task is not None and task.drop < least:
        yield case.document.at(*_TASK).fault(
            f"{name} has too few items to show that the score falls by {task.drop:g} at most: even "
            "where no answer changes, the 95 % interval ends above it",
            value=f"{items} items",
            allowed=f"a drop of {math.ceil(1000 * least) / 1000:g} or more with these",
            way_out="add items (0.02 takes 137, 0.05 takes 54), or allow a larger drop",
        )


def _files(case: GenerationCase) -> dict[KeyPath, str]:
    quantization = case.spec.quantization
    calibration, task = quantization.calibration, quantization.budget.task
    named = {
        _CALIBRATION: None if calibration is None else calibration.dataset,
        _EVALUATION: quantization.evaluation.dataset,
        _TASK: None if task is None else task.file,
    }
    return {path: file for path, file in named.items() if file is not None}


def _is_there(case: GenerationCase, file: str) -> bool:
    return bool(file) and is_inside(case.root, file) and (case.root / file).is_file()


def _is_small(case: GenerationCase, file: str) -> bool:
    path: Path = case.root / file
    return _is_there(case, file) and path.stat().st_size <= LARGEST_DATASET_BYTES


_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@rule("serving")
def adapters_are_folders_of_the_tree(case: GenerationCase) -> Iterator[Fault]:
    """A deployment publishes folders of the tree; the container itself has no network."""
    for index, adapter in enumerate(case.spec.serving.adapters):
        if not _is_folder(case, adapter):
            yield _source(case, index).fault(
                "'source' of an adapter is no folder under the onboarding root, and no other is "
                "published",
                value=adapter.source,
                allowed="a path relative to the onboarding root",
                way_out="copy the adapter's files into a folder of the tree, and commit them",
            )


@rule("serving")
def adapters_are_whole(case: GenerationCase) -> Iterator[Fault]:
    """What vLLM refuses while it runs, or would serve otherwise than it was trained, is refused."""
    for index, found in _adapters(case):
        source = case.spec.serving.adapters[index].source
        if isinstance(found, CheckpointError):
            yield _source(case, index).fault(
                f"'source' of an adapter: {found.what}", value=source, way_out=found.way_out
            )
            continue
        declared = case.spec.serving.adapters[index].rank
        ranks = {found.rank, *(shape[0] for shape, _ in found.modules.values())}
        if max(ranks) > declared:
            yield case.document.at("serving", "adapters", index).fault(
                f"its matrices have rank {max(ranks)}, above the rank that the engine is started "
                "with",
                value=declared,
                allowed=f"{max(ranks)} or more, at most 512",
                way_out=f"write `rank: {max(ranks)}`",
            )


@rule("serving", "source")
def adapters_fit_their_base(case: GenerationCase) -> Iterator[Fault]:
    """An adapter of another model gives text without sense, or changes nothing."""
    architecture = None if case.headers is None else architecture_without_adapters(case.headers)
    if architecture is not None and case.spec.serving.adapters:
        yield case.document.at("serving", "adapters").fault(
            "vLLM takes no adapters for the base model's architecture",
            value=architecture,
            way_out="merge each adapter into the model, or choose another base",
        )
        return
    base = (case.spec.source.huggingface or "").partition("@")[0]
    for index, found in _adapters(case):
        if isinstance(found, CheckpointError):
            continue
        named = found.base_model
        is_name = named is not None and _HUB_NAME.fullmatch(named) is not None
        if base and named is not None and is_name and named.lower() != base.lower():
            yield _source(case, index).fault(
                f"the adapter was trained on {named}, and 'source.huggingface' is {base}",
                value=case.spec.serving.adapters[index].source,
                way_out="serve it beside its own base; where both are one model, correct "
                "base_model_name_or_path in adapter_config.json",
            )
            continue
        problem = None if case.headers is None else adapter_problem(found, case.headers)
        if problem is not None:
            yield _source(case, index).fault(
                f"the adapter does not fit the base model: {problem}",
                value=case.spec.serving.adapters[index].source,
                way_out="serve it beside the model that it was trained on",
            )


def _is_folder(case: GenerationCase, adapter: AdapterSpec) -> bool:
    return is_inside(case.root, adapter.source) and (case.root / adapter.source).is_dir()


def _source(case: GenerationCase, index: int) -> Place:
    return case.document.at("serving", "adapters", index, "source")


def _adapters(case: GenerationCase) -> Iterator[tuple[int, Adapter | CheckpointError]]:
    """Yield the place of each adapter that is a folder, with its files or what is wrong."""
    for index, adapter in enumerate(case.spec.serving.adapters):
        if not _is_folder(case, adapter):
            continue
        try:
            yield index, read_adapter(case.root / adapter.source)
        except CheckpointError as error:
            yield index, error
