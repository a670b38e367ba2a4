"""How far the inputs that users send lie from the data that an engine was made and judged on.

The distance is the population stability index, sum of (p - q) ln(p / q) over bins, of the deciles
of the data or of categories. Without a shift its expectation is about (bins - 1)(1/n + 1/m), and it
is distributed as chi-square with bins - 1 degrees of freedom times (1/n + 1/m): B. Yurdakul,
"Statistical properties of population stability index" (2018). So every distance has its own noise:
the value that chance alone exceeds once in a thousand. An input has drifted when its distance is
above that and above 0.25, the customary limit of a major shift.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from container.triton.images import ImageProcessor as Processor
from container.triton.images import ImageRefused, decoded_image
from engine_build.datasets.dataset import Array, Sample
from engine_build.datasets.text import read_tokenizer
from engine_build.onnx_graph.network_store import Network
from onboarding.coverage import script
from onboarding.manifest import ImageProcessor
from onboarding.names import MAJOR_SHIFT

BINS = 10
Z_OF_A_THOUSANDTH = 3.0902
SMOOTHING = 0.5
"""Of a bin's count, so that an empty one has a logarithm."""
NO_LETTERS = "no letters"
UNKNOWN_SHARES = (0.0, 0.05, 0.2)
"""Bins of the share of unknown tokens: none, few, some, most."""

IMAGE_PROPERTIES = (
    "width of an image", "height of an image", "brightness of an image", "contrast of an image",
)  # fmt: skip
"""Pixels, pixels, mean and standard deviation of the network's values."""
MOST_IMAGES = 1_000
"""Whose properties are compared: each is decoded."""


@dataclass(frozen=True, kw_only=True)
class Distance:
    """One property of the inputs, and how far captured ones lie from the data's."""

    name: str
    index: float
    """Population stability index."""
    noise: float
    """What chance alone exceeds once in a thousand."""
    captured: int
    data: int
    """Samples on each side."""

    @property
    def has_drifted(self) -> bool:
        """Return whether it is more than chance, and more than the customary limit."""
        return self.index > max(self.noise, MAJOR_SHIFT)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**asdict(self), "has_drifted": self.has_drifted}


def input_distances(
    network: Network, captured: Sequence[Sample], data: Sequence[Sample]
) -> tuple[Distance, ...]:
    """Return the distance of each property of the inputs; () where a side has none."""
    if not captured or not data:
        return ()
    if network.image_processor is not None:
        sides = [
            _image_properties(network.image_processor, side[:MOST_IMAGES])
            for side in (captured, data)
        ]
        return tuple(
            numeric_distance(name, *(side[:, column] for side in sides))
            for column, name in enumerate(IMAGE_PROPERTIES)
            if all(map(len, sides))
        )
    if network.tokenizer is None:
        return tuple(_of_arrays(network, captured, data))
    return tuple(_of_texts(network, captured, data))


def numeric_distance(name: str, captured: Array, data: Array) -> Distance:
    """Return the distance of numbers, in the deciles of the data; ties make fewer bins."""
    edges = np.unique(np.quantile(data, np.linspace(0, 1, BINS + 1)[1:-1]))
    counts = (
        np.bincount(np.searchsorted(edges, side, side="left"), minlength=len(edges) + 1)
        for side in (captured, data)
    )
    return _distance(name, *counts)


def category_distance(name: str, captured: Sequence[str], data: Sequence[str]) -> Distance:
    """Return the distance of categories."""
    here, there = Counter(captured), Counter(data)
    names = sorted(here | there)
    return _distance(name, *(np.array([side[item] for item in names]) for side in (here, there)))


def _distance(name: str, captured: Array, data: Array) -> Distance:
    n, m, bins = int(captured.sum()), int(data.sum()), len(captured)
    p = (captured + SMOOTHING) / (n + SMOOTHING * bins)
    q = (data + SMOOTHING) / (m + SMOOTHING * bins)
    index = float(((p - q) * np.log(p / q)).sum())
    noise = _chi_square_limit(bins - 1) * (1 / n + 1 / m)
    return Distance(name=name, index=round(index, 4), noise=round(noise, 4), captured=n, data=m)


def _chi_square_limit(degrees: int) -> float:
    """Return the quantile 0.999 of chi-square, by Wilson and Hilferty (1931)."""
    if degrees < 1:
        return 0.0
    part = 2 / (9 * degrees)
    return degrees * float((1 - part + Z_OF_A_THOUSANDTH * math.sqrt(part)) ** 3)


def _of_texts(
    network: Network, captured: Sequence[Sample], data: Sequence[Sample]
) -> Iterator[Distance]:
    assert network.tokenizer is not None
    tokenizer = read_tokenizer(network.tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    unknown = _unknown_token(tokenizer)
    tokens = [
        [np.array(item.ids) for item in tokenizer.encode_batch_fast(list(side))]
        for side in (captured, data)
    ]
    lengths = (np.array([len(ids) for ids in side]) for side in tokens)
    yield numeric_distance("tokens of a text", *lengths)
    scripts = ([_script(item) for item in side] for side in (captured, data))
    yield category_distance("script of a text", *scripts)
    if unknown is not None:
        shares = (
            [str(np.searchsorted(UNKNOWN_SHARES, (ids == unknown).mean())) for ids in side]
            for side in tokens
        )
        yield category_distance("share of unknown tokens", *shares)


def _unknown_token(tokenizer: Any) -> int | None:
    name = getattr(tokenizer.model, "unk_token", None)
    number = getattr(tokenizer.model, "unk_id", None)
    return tokenizer.token_to_id(name) if isinstance(name, str) else number


def _script(sample: Sample) -> str:
    """Return the script of most letters of a text or pair."""
    assert isinstance(sample, str | tuple)
    counts = Counter(filter(None, (script(letter) for letter in "".join(sample))))
    return counts.most_common(1)[0][0] if counts else NO_LETTERS


def _image_properties(description: ImageProcessor, side: Sequence[Sample]) -> Array:
    """Return float64 [images, properties] of those that can be decoded."""
    processor, rows = Processor(description.model_dump(mode="json")), []
    for file in side:
        assert isinstance(file, bytes)
        try:
            image = decoded_image(file)
            pixels = processor.pixels(image)
        except ImageRefused:
            continue
        rows.append((*image.size, pixels.mean(), pixels.std()))
    values: Array = np.array(rows, np.float64).reshape(-1, len(IMAGE_PROPERTIES))
    return values


def _of_arrays(
    network: Network, captured: Sequence[Sample], data: Sequence[Sample]
) -> Iterator[Distance]:
    for name in network.input_names:
        sides = [
            [np.asarray(sample[name], dtype=np.float64) for sample in side]  # type: ignore[index,call-overload]
            for side in (captured, data)
        ]
        for word, value in (("least", np.min), ("mean", np.mean), ("largest", np.max)):
            values = (np.array([value(row) if row.size else 0.0 for row in side]) for side in sides)
            yield numeric_distance(f"{word} value of {name}", *values)
