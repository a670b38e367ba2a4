"""Verify, benchmark, decide: engines whose answers and faults the test chooses."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest

from engine_build.errors import BudgetMissed
from engine_build.evaluation.accuracy import BrokenAnswers
from engine_build.evaluation.decision import Candidate
from engine_build.log import Log
from engine_build.steps.benchmark import choose_candidate
from engine_build.steps.step import BuildState
from engine_build.steps.verify import verify_candidates
from engine_build.tensorrt.bisection import Difference
from onboarding.manifest import PlanRecord
from onboarding.model_spec import AccuracySpec, BudgetSpec
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, sample_texts, write_tree

ROWS = np.random.default_rng(0).standard_normal((120, 8)).astype(np.float32)
OVERFLOWN = ROWS.copy()
OVERFLOWN[4] = np.inf
POOR = np.random.default_rng(1).standard_normal((120, 8)).astype(np.float32)
ANSWERS = {"good": ROWS, "overflown": OVERFLOWN, "poor": POOR}

FLOAT = graphs.network(
    Path("f.onnx"), (), (graphs.record("logits", -1, 8),), labels=tuple("abcdefgh")
)


class Encoder:
    """A text's feed is its place in the dataset."""

    inputs = ("place",)

    def __init__(self, texts):
        self._places = {text: place for place, text in enumerate(texts)}

    def feed(self, texts):
        return {"place": np.array([self._places[text] for text in texts])}

    def length(self, text):
        return len(text)

    def aligned(self, rows, feed):
        return rows

    def shaped(self, texts, shape):
        return {"place": np.zeros(shape.batch, dtype=np.int64)}


class Engine:
    """Answers with rows that were chosen for it."""

    def __init__(self, rows):
        self._rows = rows
        self.closed = False

    def rows(self, feed):
        return self._rows[feed["place"]]

    def close(self):
        self.closed = True


class Machine:
    """Loads what lies at a path named after its answers, and compiles float32 for `auto`."""

    def __init__(self, float32=None):
        self.engines = []
        self.compiled = 0
        self._float32 = float32

    def load(self, runtime, path, *, as_served=True):
        self.engines.append(Engine(ANSWERS[path.stem]))
        return self.engines[-1]

    def compile_fallback(self, context, networks):
        self.compiled += 1
        path = Path(f"{self._float32}.plan")
        return None if self._float32 is None else Candidate(precision="fp32", path=path)


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ANSWERS:
        Path(f"{name}.plan").touch()

    def start_build(precision="auto", **accuracy):
        spec, texts = model("tiny", precision), sample_texts(120, seed=2)
        root = write_tree(tmp_path / "root", spec, validation=texts)
        tools = context(root, tmp_path / "out", store=None, runner=StandInRunner())
        accuracy_spec = AccuracySpec(dataset="v.txt", **accuracy)
        spec = tools.request.model.model_copy(update={"accuracy": accuracy_spec})
        request = dataclasses.replace(tools.request, model=spec)
        return dataclasses.replace(tools, request=request, log=Log(io.StringIO()))

    return start_build


def state_of(tools):
    state = BuildState(tools)
    state.networks["float"] = FLOAT
    state.encoder, state.reference = Encoder(tools.request.validation.values), ROWS
    return state


def evaluation(tools, machine, **answers):
    fallback = machine.compile_fallback
    with tools.work:
        state = state_of(tools)
        state.candidates = [
            Candidate(precision=precision, path=Path(f"{name}.plan"))
            for precision, name in answers.items()
        ]
        verify_candidates(tools, state, load=machine.load, compile_fallback=fallback)
        choose_candidate(tools, state, load=machine.load)
        return state.evaluation


def test_record_has_every_measurement_and_the_chosen_engine_last(start):
    machine = Machine()
    result = evaluation(start(), machine, fp32="good", int8="good")
    # Two to verify, two to measure, and a second copy of the baseline.
    assert len(machine.engines) == 5
    chosen = result.chosen.precision
    assert {record.subject for record in result.accuracy} == {"fp32 engine", "int8 engine"}
    assert result.accuracy[-1].subject == f"{chosen} engine"
    assert {
        (record.candidate, record.baseline, record.batch, record.sequence)
        for record in result.speedups
    } == {("int8", "fp32", 2, 8)}
    loads = [(record.precision, record.load_seconds) for record in result.runtimes]
    assert loads == [("fp32", 0.1), ("int8", 0.1)]
    assert result.footprint.precision == chosen
    assert "fp32 (duplicate control)" in {record.precision for record in result.benchmark}
    assert machine.compiled == 0 and all(engine.closed for engine in machine.engines)


def test_fp16_that_overflows_is_replaced_by_fp32_and_never_timed(start):
    machine = Machine(float32="good")
    result = evaluation(start(), machine, fp16="overflown", int8="poor")
    assert (result.chosen.precision, machine.compiled) == ("fp32", 1)
    fault = "fp16 engine gives NaN or Inf for 1 of 120 samples, the first being sample 5"
    assert fault in result.decision.sentence
    assert "fp16" not in {record.precision for record in result.benchmark}


class Located:
    """Finds the same difference everywhere, and keeps what it was asked."""

    def __init__(self):
        self.feeds = []

    def __call__(self, context, networks, candidate, feed):
        self.feeds.append(feed["place"].tolist())
        return Difference(
            node="/layer.0/norm",
            after="/layer.0/add",
            engine=np.nan,
            network=1.5,
            error=np.inf,
            cuts=7,
            seconds=41.0,
        )


PLAN = PlanRecord(tensorrt="10.6.0.26", layers=3, int8_layers=1, command="trtexec")
WHERE = (
    "The output of node /layer.0/norm is the first one that differs: nan in the engine, 1.5 in "
    "the network; the output of /layer.0/add is equal (7 cuts, 41 seconds)."
)


def verify_plan(tools, located, precision, answers):
    with tools.work:
        state = state_of(tools)
        state.candidates = [Candidate(precision=precision, path=Path(f"{answers}.plan"), plan=PLAN)]
        verify_candidates(
            tools,
            state,
            load=Machine().load,
            compile_fallback=lambda context, networks: None,
            locate=located,
        )


@pytest.mark.parametrize(
    ("answers", "samples"),
    [("overflown", [4, 0, 1, 2, 3, 5, 6, 7]), ("poor", None), ("good", None)],
)
def test_refusal_of_a_plan_names_the_first_layer_that_differs(start, answers, samples):
    located, tools = Located(), start("int8")
    if answers == "good":
        # A plan within its budget is not cut.
        verify_plan(tools, located, "int8", answers)
        assert located.feeds == []
        return
    with pytest.raises(BudgetMissed) as refusal:
        verify_plan(tools, located, "int8", answers)
    assert str(refusal.value).endswith(WHERE)
    (feed,) = located.feeds
    assert feed == samples or (samples is None and len(feed) == 8)


ANSWERS["nearly"] = np.concatenate([-ROWS[:2], ROWS[2:]])


@pytest.mark.parametrize(
    ("requested", "answers", "error", "words"),
    [
        (
            "int8",
            {"int8": "overflown"},
            BrokenAnswers,
            "int8 engine gives NaN or Inf for 1 of 120 samples",
        ),
        (
            "auto",
            {"fp16": "poor", "int8": "poor"},
            BudgetMissed,
            "precision auto misses its accuracy budget: the closest, ",
        ),
        (
            "int8",
            {"int8": "nearly"},
            BudgetMissed,
            r"precision int8 cannot be judged: .*about [\d,]+ samples",
        ),
    ],
    ids=["NaN", "outside the budget", "unclear"],
)
def test_refuses_engines_before_anything_is_timed(start, requested, answers, error, words):
    machine = Machine(float32="poor")
    with pytest.raises(error, match=words) as refusal:
        evaluation(start(requested, budget=BudgetSpec(mean=0.95)), machine, **answers)
    assert refusal.value.exit_code == 3
    assert machine.compiled == (requested == "auto")
    assert len(machine.engines) == len(answers) + machine.compiled
    assert all(engine.closed for engine in machine.engines)
