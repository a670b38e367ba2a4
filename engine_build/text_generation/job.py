"""One checkpoint, step by step: fetch, load, quantize, gate, speed, publish.

What is finished lies in the work folder under a name that tells what it is of, so that the next run
goes on from there; the record is the last file of a checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engine_build.errors import InputRefused, PublishFailed
from engine_build.log import Log
from engine_build.machine import description, return_memory
from engine_build.options import Options
from engine_build.sources.source import fetch_context, source_name
from engine_build.store import Store, sha256_of
from engine_build.text_generation.gate import (
    Evaluation,
    References,
    evaluation_of,
    judge,
    source_answers,
)
from engine_build.text_generation.language_model import LanguageModel, stored_kv_scales
from engine_build.text_generation.quantize import Calibration, copy_source, quantize, recipe_of
from engine_build.text_generation.source import FetchedSource, fetch
from engine_build.text_generation.speed import measure_speed
from engine_build.workload import VERBS, Answer, Status, Tools
from onboarding.checkpoint import checkpoint_files
from onboarding.environment_spec import EnvironmentSpec
from onboarding.generation_resolve import checkpoint_keys, scheme_plan
from onboarding.names import candidate_path, checkpoint_record_path
from onboarding.rules.cases import generation_case
from onboarding.text_generation.checkpoint import read_folder
from onboarding.text_generation.checkpoint_key import (
    UNCHANGED,
    checkpoint_prefix,
    is_gated,
    kv_cache,
)
from onboarding.text_generation.checkpoint_lock import (
    RECORD_NAME,
    CheckpointEntry,
    CheckpointFile,
    CheckpointRecordError,
    GateRecord,
    Interval,
    KvGate,
    SpeedRecord,
    files_sha256,
    read_record,
)
from onboarding.text_generation.platforms import quantizer_tools
from onboarding.text_generation.spec import GenerationBudgetSpec, TextGenerationSpec
from onboarding.tree import read_tree


def missed_budgets(budget: GenerationBudgetSpec, gate: GateRecord) -> tuple[str, ...]:
    """Return what a checkpoint misses, a phrase each; none where it holds the budget."""
    missed = list(_missed(budget, gate, ""))
    if gate.kv is not None:
        missed += _missed(budget, gate.kv, " with an FP8 KV cache on long prompts")
    if budget.task is not None and gate.task is not None:
        drop = gate.task.drop
        if drop.high > budget.task.drop:
            missed.append(
                f"the score of {gate.task.file} falls by {_text(drop)}, and the budget allows "
                f"{budget.task.drop:g}"
            )
    return tuple(missed)


def reason(scheme: str, missed: tuple[str, ...]) -> str | None:
    """Return why a checkpoint is not accepted, in one sentence; None where nothing is missed."""
    return f"{scheme} misses its budget: {'; '.join(missed)}" if missed else None


def slower(scheme: str, speed: SpeedRecord | None) -> str | None:
    """Return why a measured checkpoint is not worth its loss; None where it is, or not measured.

    It is refused where the median of the rounds' ratios to the source is below 1 by a factor that
    is larger than that between the fastest and the slowest round of either of them.
    """
    if speed is None or speed.ratio is None or not speed.is_slower:
        return None
    return (
        f"{scheme} gives {_rate(speed.output_tokens_per_second)} output tokens a second on "
        f"{speed.instance_type_or_machine}, and its source "
        f"{_rate(speed.reference_tokens_per_second)}: {_text(speed.ratio)} times, and rounds of "
        f"one of them lie {speed.noise - 1:.1%} apart"
    )


def _missed(budget: GenerationBudgetSpec, gate: KvGate, where: str) -> Iterator[str]:
    if gate.kl_per_token.high > budget.kl_per_token:
        yield (
            f"KL per token{where} is {_text(gate.kl_per_token)} nats, and the budget allows "
            f"{budget.kl_per_token:g}"
        )
    if gate.top1.low < budget.top1:
        yield f"top-1 agreement{where} is {_text(gate.top1)}, and the budget asks {budget.top1:g}"
    if gate.perplexity_ratio.high > budget.perplexity_ratio:
        yield (
            f"perplexity{where} is {_text(gate.perplexity_ratio)} times the source's, and the "
            f"budget allows {budget.perplexity_ratio:g}"
        )


def _rate(tokens_per_second: float | None) -> str:
    assert tokens_per_second is not None
    return f"{tokens_per_second:.{0 if tokens_per_second >= 100 else 1}f}"


def _text(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


COMPARED = ("kl_per_token", "top1", "perplexity_ratio")
MADE = "made.json"
"""What the files of the work folder's checkpoint are of."""
VARIABLES = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LLM_COMPRESSOR_LOG_DISABLED": "false",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    # PyTorch's threads wait for each other in a loop; other work may have the core.
    "OMP_WAIT_POLICY": "passive",
}
"""Read by libraries when they are imported, which a build does once it has begun."""


@dataclass(frozen=True, kw_only=True)
class CheckpointBuild:
    """The build of one checkpoint of a text generator."""

    root: Path
    environment: EnvironmentSpec
    spec: TextGenerationSpec
    key: str
    scheme: str
    already: str | None
    """The number format that the source's weights have; None: 16 or 32 bits."""
    tensor_parallel: int
    """GPUs that share its weights where it is measured: the plan's."""
    versions: dict[str, str]
    """Of the libraries that make checkpoints."""

    @property
    def region(self) -> str:
        """The AWS region of the environment."""
        return self.environment.region

    def build(self, tools: Tools) -> Answer:
        """Build, judge and publish what is missing.

        Raises InputRefused, SourceFault and PublishFailed.
        """
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)
        store = tools.publish_to
        known = None if store is None else published_entry(store, self.key)
        if known is not None:
            return _answer("known", known)
        entry = built_entry(tools.work.path, self.key)
        if entry is None:
            entry = self._build(tools)
            (tools.work.path / RECORD_NAME).write_bytes(entry.record)
        if store is not None:
            with tools.log.step("publish", f"{store.place}: files, the record last"):
                publish(store, entry, tools.work.path, tools.candidate, tools.log)
        return _answer(tools.new_status, entry)

    def _build(self, tools: Tools) -> CheckpointEntry:
        begin, spec, log = time.monotonic(), self.spec, tools.log
        (tools.work.path / RECORD_NAME).unlink(missing_ok=True)
        gated = is_gated(spec, self.scheme, self.already)
        evaluation = evaluation_of(spec, self.root) if gated else None
        with log.step("fetch", source_name(spec.source)):
            secrets = self.environment.source_secrets
            source = fetch(
                spec.source, fetch_context(tools, self.root, self.region, secrets, "source")
            )
        references = None
        if evaluation is not None:
            with log.step("load", f"the source's answers to {evaluation.name}"):
                references = source_answers(source, evaluation, tools)
        is_copied = self.scheme in (*UNCHANGED, self.already)
        title = f"{self.scheme}: the source's own weights" if is_copied else self.scheme
        with log.step("quantize", title):
            folder = self._files(tools, source, is_copied=is_copied)
        gate = speed = None
        if evaluation is not None and references is not None:
            with log.step("gate", f"{len(references.samples)} samples of {evaluation.name}"):
                gate = self._judge(folder, source, references, evaluation, log)
        with log.step("speed", f"{spec.slo.concurrency} requests at once"):
            if is_copied:
                log.line("  not measured: the weights are the source's")
            else:
                folders = source.folder, folder
                speed = measure_speed(spec, folders, self.tensor_parallel, tools)
        return self._entry(folder, source, gate, speed, time.monotonic() - begin)

    def _files(self, tools: Tools, source: FetchedSource, *, is_copied: bool) -> Path:
        """Return the folder of the checkpoint's files, which an earlier run may have written."""
        spec, target, made = self.spec, tools.work.path / FILES, tools.work.path / MADE
        given, recipe, calibration = spec.quantization.calibration, None, None
        if given is not None:
            calibration = Calibration(path=self.root / given.dataset, samples=given.samples)
        if not is_copied:
            has_texts, tensors = given is not None, source.checkpoint.tensors
            recipe = recipe_of(self.scheme, kv_cache(spec), has_texts=has_texts, tensors=tensors)
        what = json.dumps({"key": self.key, "recipe": recipe and asdict(recipe)})
        if made.is_file() and made.read_text(encoding="utf-8") == what:
            tools.log.line("  is there already")
            return target
        made.unlink(missing_ok=True)
        folder = tools.work.scratch("checkpoint")
        if recipe is None:
            copy_source(source, self.scheme, folder)
        else:
            quantize(source, recipe, calibration, folder, tools.log)
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
        made.write_text(what, encoding="utf-8")
        return target

    def _judge(
        self,
        folder: Path,
        source: FetchedSource,
        references: References,
        evaluation: Evaluation,
        log: Log,
    ) -> GateRecord:
        candidate = LanguageModel(folder, trusts_code=source.trusts_code)
        scales = stored_kv_scales(folder) if kv_cache(self.spec) == "fp8" else None
        gate = judge(candidate, references, evaluation, sha256_of(evaluation.path), scales, log)
        for name in COMPARED:
            interval = getattr(gate, name)
            numbers = f"{interval.value:.4f} ({interval.low:.4f} to {interval.high:.4f})"
            log.line(f"  {name.replace('_', ' ')} {numbers}")
        del candidate
        return_memory()
        return gate

    def _entry(
        self,
        folder: Path,
        source: FetchedSource,
        gate: GateRecord | None,
        speed: SpeedRecord | None,
        seconds: float,
    ) -> CheckpointEntry:
        spec, scheme = self.spec, self.scheme
        missed = () if gate is None else missed_budgets(spec.quantization.budget, gate)
        why = reason(scheme, missed) or slower(scheme, speed)
        files = list_files(folder)
        return CheckpointEntry(
            checkpoint_key=self.key,
            model=spec.name,
            scheme=scheme,
            kv_cache=kv_cache(spec),
            prefix=checkpoint_prefix(self.key),
            files=files,
            files_sha256=files_sha256(files),
            weight_bytes=read_folder(folder).bytes,
            source=source_name(spec.source),
            source_sha256=source.sha256,
            tools=self.versions,
            gate=gate,
            speed=speed,
            accepted=why is None,
            reason=why,
            seconds=round(seconds, 1),
            built_on=description(),
        )


def _answer(status: Status, entry: CheckpointEntry) -> Answer:
    fields = {
        "status": status,
        "checkpoint_key": entry.checkpoint_key,
        "scheme": entry.scheme,
        "accepted": entry.accepted,
        "verdict": entry.reason or "accepted",
        "weight_bytes": entry.weight_bytes,
    }
    verdict = "accepted" if entry.accepted else f"not accepted: {entry.reason}"
    text = (
        f"Checkpoint {entry.checkpoint_key} of {entry.model} ({entry.scheme}) {VERBS[status]}: "
        f"{entry.weight_bytes / 2**20:.0f} MiB of weights, {verdict}."
    )
    return Answer(fields, text)


FILES = "checkpoint"
"""The folder of the files, in the work folder and under a candidate."""


def list_files(folder: Path) -> tuple[CheckpointFile, ...]:
    """Return every file of a folder with its size and digest."""
    return tuple(
        CheckpointFile(
            path=name, size_bytes=(folder / name).stat().st_size, sha256=sha256_of(folder / name)
        )
        for name in checkpoint_files(folder)
    )


def published_entry(store: Store, key: str) -> CheckpointEntry | None:
    """Return the checkpoint of a key that is published; None where it, or a file of it, is gone.

    Raises PublishFailed for a record that cannot be read.
    """
    name = checkpoint_record_path(key)
    content = store.read(name)
    if content is None:
        return None
    try:
        entry = CheckpointEntry.model_validate_json(json.dumps(json.loads(content)))
    except ValueError as error:
        raise PublishFailed(
            f"{store.place}/{name} is no record of a checkpoint; delete it, then build again."
        ) from error
    sizes = {file.path: file.size_bytes for file in entry.files if entry.accepted}
    is_whole = all(
        store.size(f"{checkpoint_prefix(key)}{path}") == size for path, size in sizes.items()
    )
    return entry if is_whole else None


def built_entry(out: Path, key: str) -> CheckpointEntry | None:
    """Return the checkpoint that a work folder has finished; None where it has not."""
    try:
        entry = read_record((out / RECORD_NAME).read_bytes())
    except (OSError, CheckpointRecordError):
        return None
    is_whole = entry.checkpoint_key == key and list_files(out / FILES) == entry.files
    return entry if is_whole else None


def publish(
    store: Store, entry: CheckpointEntry, out: Path, candidate: str | None, log: Log
) -> None:
    """Upload a checkpoint, its record last; of one that was not accepted the record alone.

    With `candidate` it waits there for the environment's signer, and replaces nothing: a build's
    role may not. Raises PublishFailed.
    """
    key, is_candidate = entry.checkpoint_key, candidate is not None
    for number, file in enumerate(entry.files if entry.accepted else ()):
        log.progress(f"{number} of {len(entry.files)} files")
        name = f"{checkpoint_prefix(key)}{file.path}"
        if candidate is not None:
            name = candidate_path(key, candidate, f"{FILES}/{file.path}")
        store.upload(out / FILES / file.path, name, only_if_absent=is_candidate)
    name = checkpoint_record_path(key)
    if candidate is not None:
        name = candidate_path(key, candidate, RECORD_NAME)
    store.upload(out / RECORD_NAME, name, only_if_absent=is_candidate)


MORE_TOOLS = ("transformers", "accelerate", "safetensors")
"""Recorded beside those that the key holds."""


def read_checkpoint_build(chosen: Options) -> CheckpointBuild:
    """Read the tree and find the scheme of a key. Raises InputRefused."""
    assert chosen.key is not None
    tree = read_tree(chosen.root)
    files = {f"models/{chosen.model}.yaml", f"environments/{chosen.environment}.yaml"}
    faults = [fault for fault in tree.faults if fault.file in files]
    if faults:
        more = f"{len(faults)} faults, the first: " if len(faults) > 1 else ""
        raise InputRefused(f"{more}{faults[0]}")
    view = tree.views.get(chosen.environment)
    if view is None:
        known = ", ".join(sorted(tree.views)) or "none"
        raise InputRefused(
            f"environment {chosen.environment} has no file in environments/; there are: {known}."
        )
    generator = view.generators.get(chosen.model)
    if generator is None:
        known = ", ".join(sorted(view.generators)) or "none"
        raise InputRefused(
            f"{chosen.model} is no text generator of environment {chosen.environment}; those are: "
            f"{known}."
        )
    headers = generation_case(generator, tree.root).headers
    already = None if headers is None else headers.scheme
    keys = checkpoint_keys(generator.spec, tree.root, already)
    if chosen.key not in keys:
        schemes = ", ".join(f"{key} ({scheme})" for key, scheme in keys.items())
        raise InputRefused(
            f"{chosen.key} is no checkpoint key of {chosen.model} as its files are now; those "
            f"are: {schemes}."
        )
    plan = scheme_plan(tree, chosen.environment, chosen.model, keys[chosen.key])
    return CheckpointBuild(
        root=tree.root,
        environment=view.environment.spec,
        spec=generator.spec,
        key=chosen.key,
        scheme=keys[chosen.key],
        already=already,
        tensor_parallel=1 if plan is None else plan.tensor_parallel,
        versions=installed_tools(),
    )


def installed_tools() -> dict[str, str]:
    """Return the versions of the libraries that make checkpoints.

    Raises InputRefused where they are not those of the keys.
    """
    tools = {}
    for name, wanted in quantizer_tools().items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "none"
        if found.split("+")[0] != wanted:
            raise InputRefused(
                f"this Python has {name} {found}, and checkpoint keys are of {wanted}; run the "
                "build in the environment of requirements/quantizer.txt."
            )
        tools[name] = found
    return tools | {name: version(name) for name in MORE_TOOLS}
