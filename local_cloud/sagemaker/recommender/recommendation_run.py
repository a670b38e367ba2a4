"""One Inference Recommender job: its benchmarks one after the other, and its record."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from local_cloud.protocol.errors import present_fields
from local_cloud.sagemaker.recommender.benchmark import (
    Benchmark,
    BenchmarkFailed,
    Combination,
    sample_bodies,
)
from local_cloud.sagemaker.recommender.traffic import ramps, total_seconds

MOST_RECOMMENDATIONS = 10
UNDER_WAY = ("PENDING", "IN_PROGRESS", "STOPPING")
logger = logging.getLogger("roundhouse.recommender")
Begin = Callable[..., Benchmark]
"""Makes the benchmark of a combination with these bodies."""


@dataclass(kw_only=True)
class Step:
    """A benchmark as ListInferenceRecommendationsJobSteps shows it."""

    combination: Combination
    status: str = "PENDING"
    benchmark: Benchmark | None = None
    reason: str | None = None
    recommendation_id: str = ""

    def description(self, job: str) -> dict[str, Any]:
        """Return the step; one that has not begun has no benchmark."""
        benchmark = None
        if self.benchmark is not None:
            benchmark = {**self.benchmark.result(), **present_fields(FailureReason=self.reason)}
        return present_fields(
            StepType="BENCHMARK", JobName=job, Status=self.status, InferenceBenchmark=benchmark
        )


@dataclass(kw_only=True)
class RecommendationRun:
    """Runs the job of one record; `_turn` guards record and steps."""

    record: dict[str, Any]
    combinations: Sequence[Combination]
    begin: Begin
    stopped: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    steps: list[Step] = field(init=False)
    _turn: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.steps = [Step(combination=combination) for combination in self.combinations]

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.record["JobName"])

    def description(self) -> dict[str, Any]:
        """Return what DescribeInferenceRecommendationsJob replies."""
        with self._turn:
            return copy.deepcopy(self.record)

    def step_list(self) -> list[dict[str, Any]]:
        """Return the steps in their order."""
        with self._turn:
            return [copy.deepcopy(step.description(self.name)) for step in self.steps]

    def stop(self) -> None:
        """End the load; the record becomes STOPPED once the servers are gone."""
        with self._turn:
            if not self.ended.is_set():
                self._become("STOPPING")
                self.stopped.set()

    def run(self) -> None:
        """Run every benchmark; the record ends COMPLETED, FAILED or STOPPED whatever happens."""
        reason: str | None = "InternalServerError: We encountered an internal error."
        try:
            reason = self._run()
        except BenchmarkFailed as error:
            reason = str(error)
        except Exception:
            logger.exception("recommendation job %s", self.name)
        finally:
            self._finish(reason)

    def _run(self) -> str | None:
        """Return why the job failed; None where a benchmark succeeded."""
        config = self.record["InputConfig"]
        with self._turn:
            if not self.stopped.is_set():
                self._become("IN_PROGRESS")
        payload = config["ContainerConfig"]["PayloadConfig"]
        bodies = sample_bodies(payload["SamplePayloadUrl"], str(self.record["RoleArn"]))
        loaded, needed = 0.0, total_seconds(ramps(config))
        limit = config.get("JobDurationInSeconds")
        for step in self.steps:
            if self.stopped.is_set():
                break
            if limit is not None and loaded + needed > limit:
                with self._turn:
                    step.status, step.reason = "STOPPED", "JobDurationInSeconds is over"
                continue
            loaded += needed
            self._run_step(step, bodies)
        results = [step for step in self.steps if step.status == "COMPLETED"]
        if results or self.stopped.is_set():
            return None
        reasons = [step.reason for step in self.steps if step.reason is not None]
        return reasons[0] if reasons else "No benchmark was run."

    def _run_step(self, step: Step, bodies: Sequence[bytes]) -> None:
        benchmark = self.begin(step.combination, bodies, self.stopped)
        with self._turn:
            step.benchmark, step.status = benchmark, "IN_PROGRESS"
        status, reason = "FAILED", None
        try:
            benchmark.run()
            status = "STOPPED" if benchmark.metrics is None else "COMPLETED"
        except BenchmarkFailed as error:
            reason = str(error)
            logger.warning("recommendation job %s: %s", self.name, reason)
        finally:
            with self._turn:
                step.status, step.reason = status, reason
                step.recommendation_id = f"{self.name}/{benchmark.name[-8:]}"

    def _finish(self, reason: str | None) -> None:
        with self._turn:
            status = "COMPLETED" if reason is None else "FAILED"
            if self.stopped.is_set():
                status, reason = "STOPPED", None
            for step in self.steps:
                if step.status in UNDER_WAY:
                    step.status = "STOPPED"
            if status == "COMPLETED":
                self.record["InferenceRecommendations"] = self._recommendations()
            if reason is not None:
                self.record["FailureReason"] = reason[:1024]
            self.record["CompletionTime"] = time.time()
            self._become(status)
            self.ended.set()

    def _recommendations(self) -> list[dict[str, Any]]:
        """The cheapest an inference first, as far as costs are known; AWS names no order."""
        found = [
            {"RecommendationId": step.recommendation_id, **step.benchmark.result()}
            for step in self.steps
            if step.status == "COMPLETED" and step.benchmark is not None
        ]
        found.sort(key=lambda item: item["Metrics"].get("CostPerInference", float("inf")))
        return found[:MOST_RECOMMENDATIONS]

    def _become(self, status: str) -> None:
        self.record.update(Status=status, LastModifiedTime=time.time())
