"""The reference step: the source model's own answers to the validation samples."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from engine_build.context import BuildContext
from engine_build.datasets.dataset import DAMAGED, Array, by_length
from engine_build.errors import SourceFault
from engine_build.evaluation.answers import rows_by_length
from engine_build.ort import OrtNetwork
from engine_build.request import BuildRequest
from engine_build.sources.embedding import reference_encoder, refuse_other_vectors
from engine_build.steps.step import BuildState, Step
from engine_build.store import Store
from onboarding.names import network_path

REFERENCE_BATCH = 32


def run(context: BuildContext, state: BuildState) -> None:
    """Compute and keep the reference, unless a store had it. Raises SourceFault."""
    if state.reference is not None:
        return
    intent = f"{len(context.request.validation)} validation samples through the source model"
    with context.log.step("reference", intent):
        rows = _rows(context, state)
        if not np.isfinite(rows).all():
            broken = int((~np.isfinite(rows)).any(axis=1).sum())
            raise SourceFault(
                f"the source model gives NaN or Inf for {broken} of {len(rows)} validation "
                "samples; repair it."
            )
        if len(rows) > 1 and (rows == rows[0]).all():
            raise SourceFault(
                f"the source model answers all {len(rows)} validation samples alike, so nothing "
                "can be judged."
            )
        keep_reference(context.work_store, context.request, rows, context.work.scratch("reference"))
    state.reference = rows
    if state.model is not None:
        # What follows needs its answers only; the benchmark loads it again.
        state.model.release()


def _rows(context: BuildContext, state: BuildState) -> Array:
    """Return the source's answers; of an embedding checkpoint, those of sentence-transformers."""
    samples, longest = context.request.validation.values, context.request.longest_sequence
    batches = -(-len(samples) // REFERENCE_BATCH)
    network, model = OrtNetwork(state.networks["float"].path), state.model
    if model is None or longest is None or not model.embeds:
        answer = network.rows if model is None else model.rows
        counted = context.log.count_calls(answer, batches, "batches")
        return rows_by_length(counted, state.encoder, samples, REFERENCE_BATCH)
    model.release()
    encode = context.log.count_calls(reference_encoder(model.folder, longest), batches, "batches")
    places = by_length(state.encoder, samples)
    sorted_rows = np.concatenate(
        [
            encode([samples[place] for place in places[begin : begin + REFERENCE_BATCH]])
            for begin in range(0, len(places), REFERENCE_BATCH)
        ]
    )
    rows: Array = np.empty_like(sorted_rows)
    rows[places] = sorted_rows
    first = network.rows(state.encoder.feed(samples[:REFERENCE_BATCH]))
    refuse_other_vectors(first, rows[:REFERENCE_BATCH])
    return rows


def reference_path(request: BuildRequest) -> str:
    """Where they lie: samples and truncation decide them, and the network's key says the source."""
    words = f"{request.validation_sha256} {request.longest_sequence}"
    return network_path(
        request.network_keys["float"],
        f"reference-{hashlib.sha256(words.encode()).hexdigest()[:16]}.npy",
    )


def stored_reference(stores: tuple[Store, ...], request: BuildRequest) -> Array | None:
    """The answers [samples, values] from the first store that has them whole."""
    for store in stores:
        data = store.read(reference_path(request))
        rows = None if data is None else _read_rows(data)
        if (
            rows is not None
            and rows.ndim == 2
            and len(rows) == len(request.validation)
            and np.isfinite(rows).all()
        ):
            return rows
    return None


def keep_reference(store: Store, request: BuildRequest, rows: Array, scratch: Path) -> None:
    """Keeps them in a store."""
    path = scratch / "reference.npy"
    np.save(path, rows, allow_pickle=False)
    store.upload(path, reference_path(request))


def _read_rows(data: bytes) -> Array | None:
    try:
        rows: Array = np.load(io.BytesIO(data), allow_pickle=False)
    except DAMAGED:
        return None
    return rows


REFERENCE = Step(name="reference", run=run)
