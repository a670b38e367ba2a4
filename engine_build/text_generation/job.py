"""One checkpoint, step by step: fetch, load, quantize, gate, speed, publish.

What is finished lies in the work folder under a name that tells what it is of, so that the next run
goes on from there; the record is the last file of a checkpoint.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from engine_build.errors import PublishFailed
from engine_build.log import Log
from engine_build.machine import description, return_memory
from engine_build.runner import Runner
from engine_build.settings import Settings
from engine_build.sources.hub import PrivateSources, secret_reader
from engine_build.sources.source import FetchContext, source_name
from engine_build.store import Store, sha256_of, store_at
from engine_build.text_generation.gate import Evaluation, References, evaluation_of, judge
from engine_build.text_generation.language_model import LanguageModel, stored_kv_scales
from engine_build.text_generation.quantize import Calibration, copy_source, quantize
from engine_build.text_generation.recipe import Recipe, recipe_of
from engine_build.text_generation.request import CheckpointRequest
from engine_build.text_generation.source import FetchedSource, fetch
from engine_build.text_generation.speed import measure_speed
from engine_build.work_folder import WorkFolder
from onboarding.checkpoint import checkpoint_files
from onboarding.names import candidate_path, checkpoint_record_path
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
from onboarding.text_generation.spec import GenerationBudgetSpec


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


Status = Literal["known", "built", "candidate"]
COMPARED = ("kl_per_token", "top1", "perplexity_ratio")
MADE = "made.json"
"""What the files of the work folder's checkpoint are of."""


@dataclass(frozen=True, kw_only=True)
class CheckpointJob:
    """One build; `store` None: the checkpoint stays in the work folder."""

    request: CheckpointRequest
    tools: dict[str, str]
    work: WorkFolder
    log: Log
    runner: Runner
    store: Store | None
    upload: bool
    candidate: str | None
    settings: Settings = field(default_factory=Settings)
    token: str | None = None
    """For Hugging Face, where the environment names no secret with one."""
    clock: Callable[[], float] = time.monotonic

    def run(self) -> tuple[Status, CheckpointEntry]:
        """Build, judge and publish what is missing.

        Raises InputRefused, SourceFault and PublishFailed.
        """
        key = self.request.key
        known = None if self.store is None else published_entry(self.store, key)
        if known is not None:
            return "known", known
        entry = built_entry(self.work.path, key)
        if entry is None:
            entry = self._build()
            (self.work.path / RECORD_NAME).write_bytes(entry.record)
        if self.store is not None and self.upload:
            with self.log.step("publish", f"{self.store.place}: files, the record last"):
                publish(self.store, entry, self.work.path, self.candidate, self.log)
        return ("built" if self.candidate is None else "candidate"), entry

    def _build(self) -> CheckpointEntry:
        begin, spec, scheme = self.clock(), self.request.spec, self.request.scheme
        (self.work.path / RECORD_NAME).unlink(missing_ok=True)
        evaluation = evaluation_of(spec, self.request.root) if self._is_gated else None
        with self.log.step("fetch", source_name(spec.source)):
            source = self._fetch()
        references = None
        if evaluation is not None:
            with self.log.step("load", f"the source's answers to {evaluation.name}"):
                references = self._references(source, evaluation)
        recipe = self._recipe(source)
        title = scheme if recipe is not None else f"{scheme}: the source's own weights"
        with self.log.step("quantize", title):
            self._make(source, recipe)
        gate = None
        if evaluation is not None and references is not None:
            with self.log.step("gate", f"{len(references.samples)} samples of {evaluation.name}"):
                gate = self._judge(source, references, evaluation)
        with self.log.step("speed", f"{spec.slo.concurrency} requests at once"):
            speed = self._speed(source)
        return self._entry(source, gate, speed, self.clock() - begin)

    @property
    def _is_gated(self) -> bool:
        return is_gated(self.request.spec, self.request.scheme, self.request.already)

    @property
    def _is_copied(self) -> bool:
        return self.request.scheme in (*UNCHANGED, self.request.already)

    @property
    def _folder(self) -> Path:
        return self.work.path / FILES

    def _fetch(self) -> FetchedSource:
        environment = self.request.environment
        fetching = FetchContext(
            root=self.request.root,
            folder=self.work.scratch("source"),
            runner=self.runner,
            bucket=partial(store_at, region=environment.region),
            private=PrivateSources(
                spec=environment.source_secrets, read=secret_reader(environment.region)
            ),
            token=self.token,
        )
        return fetch(self.request.spec.source, fetching)

    def _references(self, source: FetchedSource, evaluation: Evaluation) -> References:
        model = LanguageModel(source.folder, trusts_code=source.trusts_code)
        references = References(
            source_sha256=source.sha256,
            samples=evaluation.token_lists(model),
            here=self.work.store,
            scratch=self.work.scratch("references"),
            log=self.log,
        )
        references.prepare(model, evaluation.task)
        del model
        return_memory()
        return references

    def _recipe(self, source: FetchedSource) -> Recipe | None:
        """Return how the weights change; None where they are the source's."""
        if self._is_copied:
            return None
        spec = self.request.spec
        has_texts = spec.quantization.calibration is not None
        tensors = source.checkpoint.tensors
        return recipe_of(self.request.scheme, kv_cache(spec), has_texts=has_texts, tensors=tensors)

    @property
    def _calibration(self) -> Calibration | None:
        given = self.request.spec.quantization.calibration
        if given is None:
            return None
        return Calibration(path=self.request.root / given.dataset, samples=given.samples)

    def _make(self, source: FetchedSource, recipe: Recipe | None) -> None:
        """Write the checkpoint's files, unless the work folder has them from an earlier run."""
        made = self.work.path / MADE
        what = json.dumps({"key": self.request.key, "recipe": recipe and asdict(recipe)})
        if made.is_file() and made.read_text(encoding="utf-8") == what:
            self.log.line("  is there already")
            return
        made.unlink(missing_ok=True)
        folder = self.work.scratch("checkpoint")
        if recipe is None:
            copy_source(source, self.request.scheme, folder)
        else:
            quantize(source, recipe, self._calibration, folder, self.log)
        shutil.rmtree(self._folder, ignore_errors=True)
        folder.rename(self._folder)
        made.write_text(what, encoding="utf-8")

    def _judge(
        self, source: FetchedSource, references: References, evaluation: Evaluation
    ) -> GateRecord:
        candidate = LanguageModel(self._folder, trusts_code=source.trusts_code)
        scales = stored_kv_scales(self._folder) if kv_cache(self.request.spec) == "fp8" else None
        digest = sha256_of(evaluation.path)
        gate = judge(candidate, references, evaluation, digest, scales, self.log)
        for name in COMPARED:
            interval = getattr(gate, name)
            numbers = f"{interval.value:.4f} ({interval.low:.4f} to {interval.high:.4f})"
            self.log.line(f"  {name.replace('_', ' ')} {numbers}")
        del candidate
        return_memory()
        return gate

    def _speed(self, source: FetchedSource) -> SpeedRecord | None:
        if self._is_copied:
            self.log.line("  not measured: the weights are the source's")
            return None
        return measure_speed(
            self.request.spec,
            (source.folder, self._folder),
            self.request.tensor_parallel,
            self.settings,
            self.runner,
            self.log,
        )

    def _entry(
        self,
        source: FetchedSource,
        gate: GateRecord | None,
        speed: SpeedRecord | None,
        seconds: float,
    ) -> CheckpointEntry:
        spec, scheme = self.request.spec, self.request.scheme
        missed = () if gate is None else missed_budgets(spec.quantization.budget, gate)
        why = reason(scheme, missed) or slower(scheme, speed)
        files = list_files(self._folder)
        return CheckpointEntry(
            checkpoint_key=self.request.key,
            model=spec.name,
            scheme=scheme,
            kv_cache=kv_cache(spec),
            prefix=checkpoint_prefix(self.request.key),
            files=files,
            files_sha256=files_sha256(files),
            weight_bytes=read_folder(self._folder).bytes,
            source=source_name(spec.source),
            source_sha256=source.sha256,
            tools=self.tools,
            gate=gate,
            speed=speed,
            accepted=why is None,
            reason=why,
            seconds=round(seconds, 1),
            built_on=description(),
        )


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
