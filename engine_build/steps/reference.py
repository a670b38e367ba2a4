"""The reference step: the source model's own answers to the validation samples."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence

import numpy as np

from engine_build.datasets.dataset import DAMAGED, Array, Sample, by_length, rows_of_samples
from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.request import BuildContext, BuildRequest
from engine_build.sources.embedding import reference_encoder, refuse_other_vectors
from engine_build.sources.given_network import read_reference
from engine_build.sources.head import ranking_reference, refuse_other_scores
from engine_build.steps.step import BuildState
from engine_build.store import Store
from onboarding.names import network_path
from onboarding.values import IMAGES, Precision

REFERENCE_BATCH = 32


def run(context: BuildContext, state: BuildState) -> None:
    """Compute and keep the reference, unless a store had it. Raises SourceFault."""
    if state.reference is not None:
        return
    request = context.request
    intent = f"{len(request.validation)} validation samples through the source model"
    with context.log.step("reference", intent):
        rows = _rows(context, state)
        broken = int((~np.isfinite(rows)).any(axis=1).sum())
        if broken:
            raise SourceFault(
                f"the source model gives NaN or Inf for {broken} of {len(rows)} validation "
                "samples; repair it."
            )
        if not rows.size:
            raise SourceFault(
                f"the source model answers no value for any of {len(rows)} validation samples: an "
                "output has an axis of size 0; export it with what it should answer."
            )
        if len(rows) > 1 and (rows == rows[0]).all():
            raise SourceFault(
                f"the source model answers all {len(rows)} validation samples alike, so nothing "
                "can be judged; give samples that differ, or export the network again: its outputs "
                "may not depend on its inputs."
            )
        path = context.work.scratch("reference") / "reference.npy"
        np.save(path, rows, allow_pickle=False)
        context.work.store.upload(path, reference_path(request))
    state.reference = rows
    if state.model is not None:
        # What follows needs its answers only; the benchmark loads it again.
        state.model.release()


def _rows(context: BuildContext, state: BuildState) -> Array:
    """Return the source's answers; of embedders, rankers and image classifiers, its library's."""
    samples = context.request.validation.values
    batches = -(-len(samples) // REFERENCE_BATCH)
    float_network, source, model = state.networks["float"], state.reference_source, state.model
    if source is None:
        network = OrtNetwork(float_network.path)
    else:
        folder = context.work.scratch("reference-network")
        network = read_reference(source, float_network, context.request, folder)
    own = None if model is None else _own_reference(context, state)
    if own is None:
        answer = network.rows if model is None else model.rows
        counted = context.log.count_calls(answer, batches)
        return rows_of_samples(counted, state.encoder, samples, REFERENCE_BATCH)
    reference, refuse_other = own
    encode = context.log.count_calls(reference, batches)
    order = by_length(state.encoder, samples)
    begins = range(0, len(order), REFERENCE_BATCH)
    groups = [order[begin : begin + REFERENCE_BATCH] for begin in begins]
    sorted_rows = np.concatenate([encode([samples[i] for i in group]) for group in groups])
    rows: Array = np.empty_like(sorted_rows)
    rows[order] = sorted_rows
    first = network.rows(state.encoder.feed(samples[:REFERENCE_BATCH]))
    refuse_other(first, rows[:REFERENCE_BATCH])
    return rows


def _own_reference(
    context: BuildContext, state: BuildState
) -> tuple[Callable[[Sequence[Sample]], Array], Callable[[Array, Array], None]] | None:
    """Return the library that answers whole samples, and what refuses a network that differs.

    None where the model in PyTorch is all there is.
    """
    model, longest = state.model, context.request.longest_sequence
    assert model is not None
    task = context.request.model.task
    if task == IMAGES:
        from engine_build.sources.source_model import ImageModel, refuse_other_logits

        assert isinstance(model, ImageModel)
        return model.pipeline_rows(), refuse_other_logits
    if longest is None or task not in ("text-embedding", "text-ranking"):
        return None
    model.release()
    if task == "text-ranking":
        return ranking_reference(model.folder, longest), refuse_other_scores
    prompts = state.networks["float"].prompts
    prompt = "" if prompts is None else prompts.prefix()
    return reference_encoder(model.folder, longest, prompt), refuse_other_vectors


def reference_note(request: BuildRequest, given: Precision | None) -> str | None:
    """Return what accuracy is against, where that is not the source model in float.

    `given` is what the source's own Q/DQ nodes compute in.
    """
    reference = request.model.accuracy.reference
    if reference is not None:
        return f"{reference.onnx} (sha256 {reference.sha256[:12]}) in ONNX Runtime"
    if given is None:
        return None
    return (
        "the source's own Q/DQ network in ONNX Runtime, since accuracy.reference names no float "
        "network"
    )


def reference_path(request: BuildRequest) -> str:
    """Return where they lie: samples and truncation decide them, and the source by its key."""
    words = f"{request.validation_sha256} {request.longest_sequence}"
    if request.model.accuracy.reference is not None:
        words += f" {request.model.accuracy.reference.sha256}"
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    return network_path(request.network_keys["float"], f"reference-{digest}.npy")


def stored_reference(stores: tuple[Store, ...], request: BuildRequest) -> Array | None:
    """Return the answers [samples, values] from the first store that has them whole."""
    for store in stores:
        data = store.read(reference_path(request))
        try:
            rows: Array = np.load(io.BytesIO(data or b""), allow_pickle=False)
        except DAMAGED:
            continue
        if rows.ndim == 2 and len(rows) == len(request.validation) and np.isfinite(rows).all():
            return rows
    return None
