"""The placement step: which layers of a plan of eight bits are faster in float, by measurement.

The CPU chose a network's Q/DQ nodes by accuracy and by rule; whether TensorRT is faster with them
depends on the GPU. So, role by role, the plan without a role's Q/DQ nodes is compiled and timed
against the fastest one so far. A role stays quantized where the plan is GAIN times as fast for it
at the opt shape of a profile; else it goes back to float, which is more accurate. So what is chosen
is at most GAIN times as slow as the fastest plan. The verify step judges what is left, and the
benchmark holds it against FP16.

Layers of one role are put back together: those whose names differ by numbers alone, as the same
layer of every block does, and those that read one activation, as query, key and value do, since
they share its quantize node. Convolutions differ from stage to stage, which is their names' first
number. A threshold of 1.02 is that of NVIDIA's Model Optimizer (its autotune of Q/DQ placement).
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from engine_build.errors import NetworkRefused
from engine_build.evaluation.decision import EIGHT_BITS, LEAST_ROUNDS, Candidate
from engine_build.evaluation.latency import Engine, Track, measure_latencies
from engine_build.evaluation.runtimes import SETTLING_SECONDS, Load, close, load_engine
from engine_build.onnx_graph.external_data import save_model
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.quantization.given_qdq import given_precision
from engine_build.quantization.layers import Layer, multiply_accumulates, quantizable_layers, share
from engine_build.quantization.qdq import names_read, with_nodes
from engine_build.request import BuildContext, profile_shape
from engine_build.steps.compile import compile_plan
from engine_build.steps.step import BuildState
from onboarding.values import Precision

NUMBER = re.compile(r"\d+")
WHY = "in float because the engine is faster so on the GPU that it was compiled on"


def layer_roles(layers: Sequence[Layer]) -> dict[str, tuple[Layer, ...]]:
    """Return layers by role; a role is named after its first layer, `*` for each number."""
    roles: list[tuple[set[str], tuple[Layer, ...]]] = []
    for layer in layers:
        keys = {_pattern(layer), f"reads {layer.activation}"}
        members: tuple[Layer, ...] = (layer,)
        alike = [role for role in roles if not role[0].isdisjoint(keys)]
        roles = [role for role in roles if role not in alike]
        for role in reversed(alike):
            keys, members = keys | role[0], (*role[1], *members)
        roles.append((keys, members))
    return {_pattern(members[0]): members for _, members in roles}


def restore_layers(
    quantized: onnx.ModelProto, source: onnx.ModelProto, layers: Sequence[Layer]
) -> onnx.ModelProto:
    """Return a Q/DQ network with some layers in float, as `source`, the float network, has them.

    Adds of their products are the float network's too: a bias may hold what smoothing took away.
    """
    outputs = {layer.output for layer in layers}
    own = {
        node.output[0]: node
        for node in source.graph.node
        if outputs.intersection(node.output)
        or (node.op_type == "Add" and outputs.intersection(node.input))
    }
    nodes = [
        *_constant_nodes(source, {name for node in quantized.graph.node for name in node.output}),
        *(own.get(next(iter(node.output), ""), node) for node in quantized.graph.node),
    ]
    needed = {output.name for output in quantized.graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(names_read([node]))
            kept.append(node)
    result = with_nodes(quantized, kept[::-1], {})
    known = {weight.name for weight in result.graph.initializer}
    result.graph.initializer.extend(
        weight
        for weight in source.graph.initializer
        if weight.name in needed and weight.name not in known
    )
    return result


def _constant_nodes(source: onnx.ModelProto, known: set[str]) -> list[onnx.NodeProto]:
    """Return nodes of constants alone whose outputs are not `known`, in order.

    PyTorch's exporter writes a bias that equals another one as Identity of it, which quantization
    folds away.
    """
    constants = {"", *(weight.name for weight in source.graph.initializer)}
    found: list[onnx.NodeProto] = []
    for node in source.graph.node:
        if constants.issuperset(names_read([node])):
            constants.update(node.output)
            if known.isdisjoint(node.output):
                found.append(node)
    return found


def restored_facts(
    facts: Mapping[str, Any], work: Mapping[str, int], restored: Collection[str]
) -> dict[str, Any]:
    """Return a Q/DQ network's facts once some of its layers, by node, are float."""
    floats = {*facts["float_layers"], *restored}
    quantized = [node for node in work if node not in floats]
    layers = [
        layer | ({"int8": False, "why": WHY} if layer["node"] in restored else {})
        for layer in facts.get("layers", ())
    ]
    return {
        **facts,
        **({"layers": layers} if layers else {}),
        "int8_share_of_matmul_macs": round(share(work, quantized), 4),
        "int8_layers": facts["int8_layers"] - len(restored),
        "float_layers": [node for node in work if node in floats],
    }


def _pattern(layer: Layer) -> str:
    first = NUMBER.search(layer.node) if layer.operator == "Conv" else None
    end = 0 if first is None else first.end()
    return layer.node[:end] + NUMBER.sub("*", layer.node[end:])


GAIN = 1.02
LONGEST_SECONDS = 15 * 60.0
"""Of the whole step; no compilation begins that would end later, if it lasts as long as the longest
before it."""
TIMING_SECONDS = 2.0
CompilePlan = Callable[[BuildContext, Precision, Network], Candidate]


def place_layers(
    context: BuildContext,
    state: BuildState,
    *,
    compile_plan: CompilePlan = compile_plan,
    load: Load = load_engine,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Replace each candidate of eight bits by the fastest of its placements.

    Its network and facts become those of the placement. Q/DQ nodes of the source's own stay.
    """
    if given_precision(state.networks) is not None:
        return
    end, placement = clock() + LONGEST_SECONDS, dict[Precision, str]()
    source = read_model(state.networks["float"].path)
    waiting = [item for item in state.candidates if item.precision in EIGHT_BITS]
    chosen: dict[Precision, Candidate] = {}
    with context.log.step("placement", "layers whose eight bits gain nothing, timed on this GPU"):
        for number, candidate in enumerate(waiting):
            # The others get an equal part of the time that is left.
            until = clock() + (end - clock()) / (len(waiting) - number)
            search = _Search(context, state, candidate, source, compile_plan, load, clock)
            search.run(until)
            chosen[candidate.precision] = search.best
            state.networks[candidate.precision] = search.network
            placement[candidate.precision] = search.sentence
            context.log.line(f"  {candidate.precision}: {search.sentence}")
    state.candidates = tuple(chosen.get(item.precision, item) for item in state.candidates)
    state.placement = placement


@dataclass(frozen=True, kw_only=True)
class _Role:
    name: str
    layers: tuple[Layer, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(layer.node for layer in self.layers)

    def __str__(self) -> str:
        return f"{self.name} ({len(self.layers)} layers)"


class _Search:
    """The placement of one candidate so far."""

    def __init__(
        self,
        context: BuildContext,
        state: BuildState,
        candidate: Candidate,
        source: onnx.ModelProto,
        compile_plan: CompilePlan,
        load: Load,
        clock: Callable[[], float],
    ) -> None:
        self.best, self.network = candidate, state.networks[candidate.precision]
        self._fastest = candidate
        self._context, self._state, self._load = context, state, load
        self._source, self._compile, self._clock = source, compile_plan, clock
        self._quantized = read_model(self.network.path)
        request = context.request
        row = dataclasses.replace(request.opt_shape, batch=1)
        feed = state.encoder.shaped(request.validation.values, row)
        self._work = multiply_accumulates(source, feed)
        self._folder = context.work.scratch(f"placement-{candidate.precision}")
        self._notes: list[str] = []
        self._unmeasured = 0

    @property
    def sentence(self) -> str:
        """Say which layers went back to float, and what was not measured."""
        text = ", ".join(self._notes) if self._notes else "every role of layers is faster so"
        return text + (
            f"; {self._unmeasured} roles not timed within {LONGEST_SECONDS / 60:.0f} minutes"
            if self._unmeasured
            else ""
        )

    def run(self, until: float) -> None:
        """Try each role in float, those of the least work first; one role keeps its eight bits."""
        floats, longest = set(self.network.facts["float_layers"]), 0.0
        layers = [item for item in quantizable_layers(self._source) if item.node not in floats]
        roles = [_Role(name=name, layers=group) for name, group in layer_roles(layers).items()]
        roles.sort(key=lambda role: sum(map(self._work.__getitem__, role.nodes)))
        for number, role in enumerate(roles):
            begin = self._clock()
            if begin + longest > until:
                self._unmeasured = len(roles) - number
                return
            if self.network.facts["int8_layers"] > len(role.layers):
                self._try(role)
            longest = max(longest, self._clock() - begin)

    def _try(self, role: _Role) -> None:
        model = restore_layers(self._quantized, self._source, role.layers)
        path = self._folder / f"{len(list(self._folder.iterdir()))}" / "model.onnx"
        path.parent.mkdir()
        save_model(model, path)
        facts = restored_facts(self.network.facts, self._work, role.nodes)
        network = dataclasses.replace(self.network, path=path, facts=facts)
        try:
            candidate = self._compile(self._context, self.best.precision, network)
        except NetworkRefused as error:
            self._context.log.line(f"  {role} stays as it is: {error}")
            return
        ratio = self._times_as_fast(candidate)
        self._context.log.line(f"  {ratio:.3f} times as fast with {role} in float")
        if ratio * GAIN >= 1:
            self.best, self.network, self._quantized = candidate, network, model
            self._notes.append(f"{role} in float, {ratio:.2f} times as fast so")
        if ratio > 1:
            self._fastest = candidate

    def _times_as_fast(self, candidate: Candidate) -> float:
        """Return how many times as fast as the fastest one a candidate is, at its worst shape."""
        request, samples = self._context.request, self._context.request.validation.values
        profiles = request.model.engine.optimization_profiles
        shapes = dict.fromkeys(profile_shape(profile, 1) for profile in profiles)
        tracks = [
            Track(shape=shape, feed=self._state.encoder.shaped(samples, shape), least=LEAST_ROUNDS)
            for shape in shapes
        ]
        with ExitStack() as stack:
            engines = []
            for name, item in (("fastest", self._fastest), ("tried", candidate)):
                running = self._load("tensorrt", item.path)
                stack.callback(close, running)
                engines.append(
                    Engine(
                        runtime="tensorrt",
                        precision=name,
                        run=running.rows,
                        settling=SETTLING_SECONDS,
                    )
                )
            measured = measure_latencies(engines, tracks, seconds=TIMING_SECONDS, clock=self._clock)
        return min(float(np.median(item.ratios(0, 1))) for item in measured)
