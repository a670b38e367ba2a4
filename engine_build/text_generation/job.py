"""One checkpoint, step by step: fetch, load, quantize, gate, speed, publish.

What is finished lies in the work folder under a name that tells what it is of, so that the next run
goes on from there; the record is the last file of a checkpoint.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from engine_build.log import Log
from engine_build.machine import description, return_memory
from engine_build.runner import Runner
from engine_build.settings import Settings
from engine_build.sources.bucket_checkpoint import BucketAccess
from engine_build.sources.private import PrivateSources, secret_reader
from engine_build.sources.source import FetchContext, source_name
from engine_build.store import Store, sha256_of, store_at
from engine_build.text_generation import publish as publishing
from engine_build.text_generation.gate import Evaluation, evaluation_of, judge
from engine_build.text_generation.language_model import LanguageModel, stored_kv_scales
from engine_build.text_generation.quantize import Calibration, copy_source, quantize
from engine_build.text_generation.recipe import Recipe, recipe_of
from engine_build.text_generation.references import References
from engine_build.text_generation.request import CheckpointRequest
from engine_build.text_generation.scores import Divergence
from engine_build.text_generation.sensitivity import layers_to_keep
from engine_build.text_generation.source import FetchedSource, fetch
from engine_build.text_generation.speed import measure_speed
from engine_build.text_generation.verdict import is_missed_by_little, missed_budgets, reason, slower
from engine_build.work_folder import WorkFolder
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
    GateRecord,
    SpeedRecord,
    files_sha256,
)

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
        known = None if self.store is None else publishing.published_entry(self.store, key)
        if known is not None:
            return "known", known
        entry = publishing.built_entry(self.work.path, key)
        if entry is None:
            entry = self._build()
            (self.work.path / RECORD_NAME).write_bytes(entry.record)
        if self.store is not None and self.upload:
            with self.log.step("publish", f"{self.store.place}: files, the record last"):
                publishing.publish(self.store, entry, self.work.path, self.candidate, self.log)
        return ("built" if self.candidate is None else "candidate"), entry

    def _build(self) -> CheckpointEntry:
        begin, spec = self.clock(), self.request.spec
        (self.work.path / RECORD_NAME).unlink(missing_ok=True)
        evaluation = evaluation_of(spec, self.request.root) if self._is_gated else None
        with self.log.step("fetch", source_name(spec.source)):
            source = self._fetch()
        references = None
        if evaluation is not None:
            with self.log.step("load", f"the source's answers to {evaluation.name}"):
                references = self._references(source, evaluation)
        recipe = self._recipe(source)
        with self.log.step("quantize", self._title(recipe)):
            self._make(source, recipe)
        gate = None
        if evaluation is not None and references is not None:
            gate, recipe = self._judge(source, references, evaluation, recipe)
        with self.log.step("speed", f"{spec.slo.concurrency} requests at once"):
            speed = self._speed(source)
        return self._entry(source, recipe, gate, speed, self.clock() - begin)

    @property
    def _is_gated(self) -> bool:
        return is_gated(self.request.spec, self.request.scheme, self.request.already)

    @property
    def _is_copied(self) -> bool:
        return self.request.scheme in (*UNCHANGED, self.request.already)

    @property
    def _folder(self) -> Path:
        return self.work.path / publishing.FILES

    def _fetch(self) -> FetchedSource:
        environment = self.request.environment
        fetching = FetchContext(
            root=self.request.root,
            folder=self.work.scratch("source"),
            runner=self.runner,
            access=BucketAccess(
                bucket=partial(store_at, region=environment.region),
                copies=self.store if self.upload else None,
                own=None if self.store is None else self.store.place,
            ),
            private=PrivateSources(
                spec=environment.source_secrets, read=secret_reader(environment.region)
            ),
            token=self.token,
        )
        return fetch(self.request.spec.source, fetching)

    def _references(self, source: FetchedSource, evaluation: Evaluation) -> References:
        load = partial(LanguageModel, source.folder, trusts_code=source.trusts_code)
        model = load()
        references = References(
            source_sha256=source.sha256,
            samples=evaluation.token_lists(model),
            model=load,
            here=self.work.store,
            scratch=self.work.scratch("references"),
            log=self.log,
        )
        references.keep(model)
        references.prepare()
        if evaluation.task is not None:
            references.right_answers(evaluation.task)
        references.release()
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

    def _title(self, recipe: Recipe | None) -> str:
        if recipe is None:
            return f"{self.request.scheme}: the source's own weights"
        layers = ", ".join(map(str, recipe.kept_layers))
        return self.request.scheme + (f", layers {layers} in 16 bits" if layers else "")

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
        self,
        source: FetchedSource,
        references: References,
        evaluation: Evaluation,
        recipe: Recipe | None,
    ) -> tuple[GateRecord, Recipe | None]:
        """Judge the checkpoint; one that misses by little is made again with layers in 16 bits."""
        with self.log.step("gate", f"{len(references.samples)} samples of {evaluation.name}"):
            gate, candidate = self._gate(source, references, evaluation)
            budget = self.request.spec.quantization.budget
            layers: tuple[int, ...] = ()
            if recipe is not None and is_missed_by_little(budget, gate):
                self.log.line("  misses its budget by little: which layers cost most?")

                def holds(found: Divergence) -> bool:
                    fields = {name: getattr(found, name) for name in COMPARED}
                    tried = gate.model_copy(update={**fields, "kv": None, "task": None})
                    return not missed_budgets(budget, tried)

                layers = layers_to_keep(candidate, references, holds, self.log)
                references.release()
            del candidate
            return_memory()
        if recipe is None or not layers:
            return gate, recipe
        mixed = replace(recipe, kept_layers=layers)
        with self.log.step("quantize", self._title(mixed)):
            self._make(source, mixed)
        with self.log.step("gate", f"{len(references.samples)} samples of {evaluation.name}"):
            return self._gate(source, references, evaluation)[0], mixed

    def _gate(
        self, source: FetchedSource, references: References, evaluation: Evaluation
    ) -> tuple[GateRecord, LanguageModel]:
        candidate = LanguageModel(self._folder, trusts_code=source.trusts_code)
        scales = stored_kv_scales(self._folder) if kv_cache(self.request.spec) == "fp8" else None
        digest = sha256_of(evaluation.path)
        gate = judge(candidate, references, evaluation, digest, scales, self.log)
        for name in COMPARED:
            interval = getattr(gate, name)
            numbers = f"{interval.value:.4f} ({interval.low:.4f} to {interval.high:.4f})"
            self.log.line(f"  {name.replace('_', ' ')} {numbers}")
        return gate, candidate

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
        recipe: Recipe | None,
        gate: GateRecord | None,
        speed: SpeedRecord | None,
        seconds: float,
    ) -> CheckpointEntry:
        spec, scheme = self.request.spec, self.request.scheme
        missed = () if gate is None else missed_budgets(spec.quantization.budget, gate)
        why = reason(scheme, missed) or slower(scheme, speed)
        files = publishing.list_files(self._folder)
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
            layers_in_16_bits=() if recipe is None else recipe.kept_layers,
            accepted=why is None,
            reason=why,
            seconds=round(seconds, 1),
            built_on=description(),
        )
