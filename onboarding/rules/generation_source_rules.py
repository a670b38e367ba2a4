"""Rules of a text generator's checkpoint, quantization and LoRA adapters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from onboarding.checkpoint import checkpoint_sha256
from onboarding.dataset import evaluation_path, is_inside
from onboarding.fault import Fault, comma_list
from onboarding.rules.cases import GenerationCase
from onboarding.rules.source_rules import (
    REPOSITORY,
    SHA256,
    folder_faults,
    kind_faults,
    pin_faults,
)
from onboarding.text_generation.adapter import (
    Adapter,
    adapter_problem,
    architecture_without_adapters,
    read_adapter,
)
from onboarding.text_generation.checkpoint import CheckpointError
from onboarding.text_generation.checkpoint_key import (
    CALIBRATION_FILE,
    EVALUATION_FILE,
    TASK_FILE,
    dataset_files,
)
from onboarding.text_generation.kv_cache import ArchitectureError, cache_layers
from onboarding.text_generation.platforms import quantization_methods
from onboarding.text_generation.texts import (
    ENOUGH_SAMPLES,
    KINDS,
    TaskFileError,
    TextsError,
    least_drop,
    read_task_file,
    read_texts,
    shared_line,
)
from onboarding.text_generation.weights import mismatches

SOURCES = ("huggingface", "python_package", "checkpoint")
LARGEST_DIGEST_BYTES = 256 << 20
"""Folders above it are not read whole by `check`, which is to answer within two seconds."""
LARGEST_DATASET_BYTES = 64 << 20
"""Larger ones are read when they are used, for the same reason."""
CALIBRATED = ("int8", "awq", "gptq", "nvfp4", "w4a8-fp8")
"""Schemes whose ranges are set by texts."""
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def generator_source_is_pinned(case: GenerationCase) -> Iterator[Fault]:
    """A branch, a version range or a folder without digest may change.

    Code of a repository runs with the endpoint's rights, so it must be code that was read.
    """
    source = case.spec.source
    yield from kind_faults(case.file, SOURCES)
    yield from pin_faults(case.file)
    if source.checkpoint is not None:
        yield from folder_faults(case.file, case.root, source.checkpoint)
        if source.sha256 is None:
            yield case.file.at("source.checkpoint").fault(
                "unpinned source: 'source.checkpoint' needs 'source.sha256'",
                value=source.checkpoint,
                way_out="add the digest of the folder's sorted `sha256sum` lines",
            )
    if source.trust_remote_code and not REPOSITORY.fullmatch(source.huggingface or ""):
        yield case.file.fault(
            "source.trust_remote_code",
            "runs code of a source without a pinned commit",
            allowed="source.huggingface: owner/name@<40 hex digits>",
            way_out="pin the commit whose code you read, or take the line out",
        )


def generator_checkpoint_is_whole(case: GenerationCase) -> Iterator[Fault]:
    """Every shard is there, its header can be read, and config.json fits the tensors."""
    key, found = case.headers_key, case.checkpoint
    if isinstance(found, CheckpointError):
        yield case.file.at(key).fault(
            f"'{key}': {found.what}", value=_headers_file(case), way_out=found.way_out
        )
    elif found is not None and (problem := mismatches(found)) is not None:
        yield case.file.at(key).fault(
            f"'{key}': config.json and the tensors disagree: {problem}",
            value=_headers_file(case),
            way_out="fetch or save the checkpoint again, both from one revision",
        )
    if case.headers is None:
        return
    if case.headers.has_chat_template is False:
        yield case.file.at(key).fault(
            f"'{key}': its tokenizer has no chat template, so that it cannot answer messages",
            value=_headers_file(case),
            way_out="choose the model's instruct version, or add chat_template.jinja to the "
            "checkpoint",
        )
    try:
        cache_layers(case.headers.text_config)
    except ArchitectureError as error:
        yield case.file.at(key).fault(
            f"'{key}': its KV cache cannot be counted: {error}",
            allowed="full, grouped, multi-query, latent and sliding-window attention",
            way_out="choose another checkpoint, or correct its config.json",
        )


def generator_digest_is_the_folders(case: GenerationCase) -> Iterator[Fault]:
    """The digest pins the files; larger folders are compared when they are copied."""
    source, given = case.spec.source, case.spec.source.sha256
    folder = case.root / (source.checkpoint or "")
    if source.checkpoint is None or given is None or case.headers is None:
        return
    if not is_inside(case.root, source.checkpoint) or not folder.is_dir():
        return
    is_small = case.headers.bytes <= LARGEST_DIGEST_BYTES
    if is_small and SHA256.fullmatch(given) and (digest := checkpoint_sha256(folder)) != given:
        yield case.file.fault(
            "source.sha256",
            "is not the checkpoint's digest",
            allowed=digest,
            way_out="restore the files, or write the digest that they have",
        )


def length_is_within_the_checkpoints(case: GenerationCase) -> Iterator[Fault]:
    """Positions beyond those that a model was trained for give text without sense."""
    config = {} if case.headers is None else case.headers.text_config
    longest = config.get("max_position_embeddings")
    if isinstance(longest, int) and case.spec.context.max_model_len > longest:
        yield case.file.fault(
            "context.max_model_len",
            "is above the checkpoint's max_position_embeddings",
            allowed=f"at most {longest}",
            way_out="lower it, or choose a checkpoint of a longer context",
        )


def quantized_checkpoint_stays_as_it_is(case: GenerationCase) -> Iterator[Fault]:
    """Weights that are quantized already cannot be quantized once more."""
    names = [name for name in case.spec.quantization.schemes if name not in ("bf16", "fp16")]
    if case.headers is not None and case.headers.is_quantized and names:
        yield case.file.fault(
            "quantization.schemes",
            "would quantize a checkpoint that config.json says is quantized already",
            value=", ".join(names),
            allowed="[bf16]: its weights are served as they are",
            way_out="take the schemes out, or name the checkpoint in 16 bits",
        )


def quantization_is_the_engines(case: GenerationCase) -> Iterator[Fault]:
    """The server exits for a checkpoint that is quantized in a way that it does not load."""
    quantization = None if case.headers is None else case.headers.quantization
    known, key = quantization_methods(case.engine_version), case.headers_key
    if quantization is None or known is None or "quant_method" not in quantization:
        return  # Without one vLLM finds ModelOpt's by its producer.
    method = str(quantization["quant_method"]).lower()
    if method not in known:
        yield case.file.at(key).fault(
            f"'{key}': config.json names quantization method {method}, which vLLM "
            f"{case.engine_version} does not load",
            value=_headers_file(case),
            allowed=comma_list(known),
            way_out="name the checkpoint in 16 bits, and its format in quantization.schemes",
        )


def quantization_texts_can_be_read(case: GenerationCase) -> Iterator[Fault]:
    """Each line is a text or the messages of a chat, and held-out texts are enough to judge."""
    quantization = case.spec.quantization
    needy = [name for name in quantization.schemes if name in CALIBRATED]
    if needy and quantization.calibration is None:
        yield case.file.at("quantization.schemes").fault(
            f"'quantization.calibration' is missing, which {', '.join(needy)} needs",
            way_out="add `calibration: {dataset: models/data/chat.jsonl}`, or leave the scheme out",
        )
    for path, file in dataset_files(case.spec).items():
        if not is_inside(case.root, file) or not (case.root / file).is_file():
            yield case.file.fault(
                path,
                "is no file under the onboarding root",
                way_out="add the file, or correct the path",
            )
            continue
        if path == TASK_FILE or not _is_small(case, file):
            continue
        least = ENOUGH_SAMPLES if path == EVALUATION_FILE else 1
        try:
            count = sum(1 for _ in read_texts(case.root / file))
        except TextsError as error:
            where = file if error.line is None else f"{file}:{error.line}"
            yield case.file.fault(path, error.what, value=where, way_out=error.way_out)
            continue
        if count < least:
            yield case.file.fault(
                path,
                f"has {count} samples",
                allowed=f"{least} or more, in a file that ends in {', '.join(KINDS)}",
                way_out="add texts",
            )


def evaluation_texts_are_held_out(case: GenerationCase) -> Iterator[Fault]:
    """A checkpoint looks better on the texts that set its ranges than it is."""
    calibration = case.spec.quantization.calibration
    named = case.spec.quantization.evaluation.dataset
    if calibration is None or not _is_small(case, calibration.dataset):
        return
    if named is not None and not _is_small(case, named):
        return
    evaluation = evaluation_path() if named is None else case.root / named
    try:
        shared = shared_line(case.root / calibration.dataset, calibration.samples, evaluation)
    except TextsError:
        return
    if shared is not None:
        yield case.file.at(EVALUATION_FILE, CALIBRATION_FILE).fault(
            "'quantization.evaluation' holds texts that 'quantization.calibration' holds too",
            value=f"{named or 'the shipped texts'}, line {shared[0]}, and "
            f"{calibration.dataset}, line {shared[1]}",
            way_out="take the line out of one of the files",
        )


def task_file_can_be_read(case: GenerationCase) -> Iterator[Fault]:
    """A task is prompts with the answers expected."""
    task = case.spec.quantization.budget.task
    if task is None or not _is_small(case, task.file):
        return
    try:
        items = len(read_task_file(case.root / task.file).items)
    except TaskFileError as error:
        what, _, way_out = str(error).rpartition("; ")
        yield case.file.fault(TASK_FILE, what, way_out=way_out)
        return
    least = least_drop(items)
    if task.drop < least:
        yield case.file.fault(
            TASK_FILE,
            f"has too few items to show that the score falls by {task.drop:g} at most: even "
            "where no answer changes, the 95 % interval ends above it",
            value=f"{items} items",
            allowed=f"a drop of {math.ceil(1000 * least) / 1000:g} or more with these",
            way_out="add items (0.02 takes 137, 0.05 takes 54), or allow a larger drop",
        )


def _headers_file(case: GenerationCase) -> str | None:
    source = case.spec.source
    return source.checkpoint if source.headers is None else source.headers


def _is_small(case: GenerationCase, file: str) -> bool:
    """Return whether a file is there that `check` may read whole."""
    path = case.root / file
    is_there = is_inside(case.root, file) and path.is_file()
    return is_there and path.stat().st_size <= LARGEST_DATASET_BYTES


def adapters_are_whole(case: GenerationCase) -> Iterator[Fault]:
    """What vLLM refuses while it runs, or would serve otherwise than it was trained, is refused.

    A deployment publishes folders of the tree; the container itself has no network.
    """
    for index, adapter in enumerate(case.spec.serving.adapters):
        place, found = case.file.at(f"serving.adapters[{index}].source"), _adapter(case, index)
        if found is None:
            yield place.fault(
                "'source' of an adapter is no folder under the onboarding root, and no other is "
                "published",
                value=adapter.source,
                allowed="a path relative to the onboarding root",
                way_out="copy the adapter's files into a folder of the tree, and commit them",
            )
        elif isinstance(found, CheckpointError):
            yield place.fault(
                f"'source' of an adapter: {found.what}", value=adapter.source, way_out=found.way_out
            )
        else:
            most = max(found.rank, *(shape[0] for shape, _ in found.modules.values()))
            if most > adapter.rank:
                yield case.file.at(f"serving.adapters[{index}]").fault(
                    f"its matrices have rank {most}, above the rank that the engine is started "
                    "with",
                    value=adapter.rank,
                    allowed=f"{most} or more, at most 512",
                    way_out=f"write `rank: {most}`",
                )


def adapters_fit_their_base(case: GenerationCase) -> Iterator[Fault]:
    """An adapter of another model gives text without sense, or changes nothing."""
    adapters = case.spec.serving.adapters
    architecture = None if case.headers is None else architecture_without_adapters(case.headers)
    if architecture is not None and adapters:
        yield case.file.at("serving.adapters").fault(
            "vLLM takes no adapters for the base model's architecture",
            value=architecture,
            way_out="merge each adapter into the model, or choose another base",
        )
        return
    base = (case.spec.source.huggingface or "").partition("@")[0]
    for index, adapter in enumerate(adapters):
        found = _adapter(case, index)
        if not isinstance(found, Adapter):
            continue
        named = found.base_model
        is_name = named is not None and _HUB_NAME.fullmatch(named) is not None
        if base and named is not None and is_name and named.lower() != base.lower():
            what = f"the adapter was trained on {named}, and 'source.huggingface' is {base}"
            way_out = (
                "serve it beside its own base; where both are one model, correct "
                "base_model_name_or_path in adapter_config.json"
            )
        else:
            problem = None if case.headers is None else adapter_problem(found, case.headers)
            if problem is None:
                continue
            what = f"the adapter does not fit the base model: {problem}"
            way_out = "serve it beside the model that it was trained on"
        place = case.file.at(f"serving.adapters[{index}].source")
        yield place.fault(what, value=adapter.source, way_out=way_out)


def _adapter(case: GenerationCase, index: int) -> Adapter | CheckpointError | None:
    """Return an adapter's files, or what is wrong with them; None where it is no folder."""
    source = case.spec.serving.adapters[index].source
    if not is_inside(case.root, source) or not (case.root / source).is_dir():
        return None
    try:
        return read_adapter(case.root / source)
    except CheckpointError as error:
        return error


RULES = (
    generator_source_is_pinned,
    generator_checkpoint_is_whole,
    generator_digest_is_the_folders,
    length_is_within_the_checkpoints,
    quantized_checkpoint_stays_as_it_is,
    quantization_is_the_engines,
    quantization_texts_can_be_read,
    evaluation_texts_are_held_out,
    task_file_can_be_read,
    adapters_are_whole,
    adapters_fit_their_base,
)
