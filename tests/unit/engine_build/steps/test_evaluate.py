"""Verify, benchmark, decide: engines whose answers and faults the test chooses."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples
from engine_build.errors import BudgetMissed, InputRefused
from engine_build.evaluation.accuracy import BrokenAnswers
from engine_build.evaluation.decision import Candidate
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.steps.evaluate import choose_candidate, verify_candidates
from engine_build.steps.prepare import Prepared
from engine_build.steps.verify import standard
from onboarding.manifest import TensorRecord
from onboarding.model_spec import AccuracySpec, BudgetSpec
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, sentences, write_tree

ROWS = np.random.default_rng(0).standard_normal((120, 8)).astype(np.float32)
OVERFLOWN = ROWS.copy()
OVERFLOWN[4] = np.inf
POOR = np.random.default_rng(1).standard_normal((120, 8)).astype(np.float32)
ANSWERS = {"good": ROWS, "overflown": OVERFLOWN, "poor": POOR}

FLOAT = Network(
    precision="float",
    path=Path("f.onnx"),
    inputs=(),
    outputs=(TensorRecord(name="logits", datatype="FP32", shape=(-1, 8)),),
    facts={},
    labels=tuple("abcdefgh"),
)


class Encoder:
    """A text's feed is its place in the dataset."""

    inputs = ("place",)

    def __init__(self, texts):
        self._places = {text: place for place, text in enumerate(texts)}

    def feeds(self, texts, batch):
        for begin in range(0, len(texts), batch):
            yield {"place": np.array([self._places[text] for text in texts[begin : begin + batch]])}

    def length(self, text):
        return len(text)

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
    """Opens what lies at a path named after its answers, and compiles float32 when asked to."""

    def __init__(self, further=None):
        self.engines = []
        self.compiled = 0
        self._further = further

    def load(self, runtime, path, *, as_served=True):
        self.engines.append(Engine(ANSWERS[path.stem]))
        return self.engines[-1]

    def compile_fallback(self, context, networks):
        self.compiled += 1
        return (
            None
            if self._further is None
            else Candidate(precision="fp32", path=Path(f"{self._further}.plan"))
        )


@pytest.fixture
def desk(tmp_path):
    def made(precision="auto", **accuracy):
        root = write_tree(
            tmp_path / "root", model("tiny", precision), validation=sentences(120, seed=2)
        )
        tools = context(root, tmp_path / "out", store=None, runner=StandInRunner())
        wish = tools.request.model.model_copy(
            update={"accuracy": AccuracySpec(dataset="v.txt", **accuracy)}
        )
        request = dataclasses.replace(tools.request, model=wish)
        return dataclasses.replace(tools, request=request, log=Log(io.StringIO()))

    return made


def evaluation(tools, machine, **answers):
    prepared = Prepared(
        networks={"float": FLOAT},
        encoder=Encoder(tools.request.validation.values),
        reference=ROWS,
        source=None,
    )
    candidates = [
        Candidate(precision=precision, path=Path(f"{name}.plan"))
        for precision, name in answers.items()
    ]
    with tools.work:
        verified = verify_candidates(
            tools,
            prepared,
            candidates,
            load=machine.load,
            compile_fallback=machine.compile_fallback,
        )
        return choose_candidate(tools, prepared, verified, load=machine.load)


def test_everything_measured_is_in_the_record_the_chosen_engine_last(desk):
    machine = Machine()
    found = evaluation(desk(), machine, fp32="good", int8="good")
    assert {record.subject for record in found.accuracy} == {"fp32 engine", "int8 engine"}
    assert found.accuracy[-1].subject == f"{found.chosen.precision} engine"
    assert {
        (each.candidate, each.baseline, each.batch, each.sequence) for each in found.speedups
    } == {("int8", "fp32", 2, 8)}
    assert [(each.precision, each.load_seconds) for each in found.runtimes] == [
        ("fp32", 0.1),
        ("int8", 0.1),
    ]
    assert found.footprint.precision == found.chosen.precision
    assert "fp32 (duplicate control)" in {record.precision for record in found.benchmark}
    assert machine.compiled == 0 and all(engine.closed for engine in machine.engines)


def test_control_is_a_second_copy_of_the_baseline(desk):
    machine = Machine()
    evaluation(desk(), machine, fp32="good")
    # One to verify, one to measure, and its copy.
    assert len(machine.engines) == 3


def test_fp16_that_overflows_is_replaced_by_fp32_and_never_timed(desk):
    machine = Machine(further="good")
    found = evaluation(desk(), machine, fp16="overflown", int8="poor")
    assert (found.chosen.precision, machine.compiled) == ("fp32", 1)
    assert (
        "fp16 engine gives NaN or Inf for 1 of 120 samples, the first being sample 5"
        in found.decision.sentence
    )
    assert "fp16" not in {record.precision for record in found.benchmark}


def test_int8_that_passes_is_measured_against_the_fp32_that_replaces_fp16(desk):
    found = evaluation(desk(), Machine(further="good"), fp16="poor", int8="good")
    assert {each.baseline for each in found.speedups if each.candidate == "int8"} == {"fp32"}


def test_log_names_the_worst_sample_of_an_engine_that_does_not_pass(desk):
    tools = desk()
    stream = io.StringIO()
    evaluation(dataclasses.replace(tools, log=Log(stream)), Machine(), fp32="good", int8="poor")
    assert f"its worst is sample {int(cosine(POOR).argmin()) + 1}, '" in stream.getvalue()
    assert "not on this machine: " in stream.getvalue() and "load s" in stream.getvalue()


def cosine(rows):
    return (rows * ROWS).sum(axis=1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(ROWS, axis=1)


def test_refuses_a_requested_engine_that_answers_nan(desk):
    machine = Machine(further="good")
    with pytest.raises(BrokenAnswers, match="int8 engine gives NaN or Inf for 1 of 120 samples"):
        evaluation(desk("int8"), machine, int8="overflown")
    assert (
        BrokenAnswers.exit_code == 3
        and machine.compiled == 0
        and all(engine.closed for engine in machine.engines)
    )


def test_refuses_auto_whose_every_engine_misses_the_budget_before_anything_is_timed(desk):
    machine = Machine(further="poor")
    with pytest.raises(
        BudgetMissed, match=r"precision auto misses its accuracy budget: the closest, "
    ):
        evaluation(desk(), machine, fp16="poor", int8="poor")
    assert len(machine.engines) == 3


def test_refuses_a_requested_engine_on_an_interval_that_holds_the_budget(desk):
    rows = ROWS.copy()
    rows[:2] = -rows[:2]
    ANSWERS["nearly"] = rows
    with pytest.raises(
        BudgetMissed, match=r"precision int8 cannot be judged: .*about [\d,]+ samples"
    ):
        evaluation(desk("int8", budget=BudgetSpec(mean=0.95)), Machine(), int8="nearly")


def classifier(tools, labels):
    request = dataclasses.replace(
        tools.request, validation=Samples(values=tools.request.validation.values, labels=labels)
    )
    prepared = Prepared(
        networks={"float": FLOAT},
        encoder=Encoder(request.validation.values),
        reference=ROWS,
        source=None,
    )
    return dataclasses.replace(tools, request=request), prepared


def test_labels_are_classes_by_name(desk):
    tools, prepared = classifier(
        desk(metric="accuracy"), tuple("abcdefgh"[place] for place in ROWS.argmax(axis=1))
    )
    assert (standard(tools, prepared).labels == ROWS.argmax(axis=1)).all()


def test_refuses_labels_that_are_no_class(desk):
    tools, prepared = classifier(desk(metric="accuracy"), ("z",) * 120)
    with pytest.raises(InputRefused, match="no class of the model, such as 'z'"):
        standard(tools, prepared)
