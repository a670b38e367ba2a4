"""Which decoder layers lose most in a number format: a small greedy search.

A layer of the checkpoint is put back to the source's, whole, and the KL that this saves is its
cost. Whole layers are exchanged because smoothing moves factors between the weights of one layer
and never out of it, and because vLLM fuses projections of one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine_build.log import Log
from engine_build.text_generation.gate import candidate_scores
from engine_build.text_generation.language_model import LanguageModel
from engine_build.text_generation.references import References
from engine_build.text_generation.scores import Divergence, divergence

SEARCH_SAMPLES = 8
"""Held-out samples on which each layer's cost is measured; all decide how many stay."""
MOST_SHARE = 0.25
"""Of the layers that may stay in 16 bits: with more the format saves too little."""


def layers_to_keep(
    candidate: LanguageModel,
    references: References,
    holds: Callable[[Divergence], bool],
    log: Log,
) -> tuple[int, ...]:
    """Return the fewest of the costliest layers with which the budget holds; empty: none are.

    `holds` judges a comparison on all samples. Numbers of layers are tried by doubling.
    """
    own, given = decoder_layers(references.source.model), decoder_layers(candidate.model)
    if own is None or given is None:
        return ()
    subset = range(min(SEARCH_SAMPLES, len(references.samples)))
    costs = []
    whole = _kl(candidate, references, subset, log)
    for number in range(len(given)):
        with _exchanged(given, own, (number,)):
            costs.append(whole - _kl(candidate, references, subset, log))
    order = sorted(range(len(costs)), key=lambda number: -costs[number])
    most, count = max(1, int(len(given) * MOST_SHARE)), 1
    while True:
        chosen = tuple(sorted(order[:count]))
        with _exchanged(given, own, chosen):
            found = divergence(candidate_scores(candidate, references, log))
        names = ", ".join(map(str, chosen))
        kl = found.kl_per_token
        log.line(f"  layers {names} in 16 bits: KL {kl.value:.4f} ({kl.low:.4f} to {kl.high:.4f})")
        if holds(found):
            return chosen
        if count == most:
            return ()
        count = min(2 * count, most)


def decoder_layers(model: Any) -> Any:
    """Return the list of a model's decoder layers, as many as its config says; None without one."""
    import torch

    count = model.config.get_text_config(decoder=True).num_hidden_layers
    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    return next((found for found in lists if len(found) == count), None)


def _kl(
    candidate: LanguageModel, references: References, numbers: Sequence[int], log: Log
) -> float:
    return divergence(candidate_scores(candidate, references, log, numbers)).kl_per_token.value


@contextmanager
def _exchanged(given: Any, own: Any, numbers: Sequence[int]) -> Iterator[None]:
    before = {number: given[number] for number in numbers}
    try:
        for number in numbers:
            given[number] = own[number]
        yield
    finally:
        for number, layer in before.items():
            given[number] = layer
