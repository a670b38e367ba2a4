"""The batches of each model: as a runtime takes them, and the same rows as a server's request."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.runtimes.networks import SIZES
from benchmarks.runtimes.servers import Request
from container.wire import array_request, text_request
from engine_build.datasets.dataset import Array, Feed, Shape

LONGEST = {"bert-large-512": 512}
MAX_TOKENS = 128
SHORTEST_SHARE = 8
"""Long texts have between an eighth of the longest and all of it, evenly spread."""
SEED, TEXTS_SEED = 7, 4


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One batch; texts are padded to its longest, as transformers' tokenizers pad."""

    shape: Shape
    feed: Feed
    request: Request
    useful_tokens: int | None
    """None for images: each of their patches is useful."""

    @property
    def padded_tokens(self) -> int | None:
        """Tokens that run, padding included."""
        return None if self.shape.sequence is None else self.shape.batch * self.shape.sequence


def workload(name: str, root: Path, tokenizer: Path, batch: int, number: int = 0) -> Workload:
    """Return a batch of a model; `number` chooses other rows, the same in every run."""
    size = SIZES[name.removesuffix("-512")]
    if size.image:
        return _images(size.image, batch, number)
    longest = LONGEST.get(name, MAX_TOKENS)
    if name in LONGEST:
        texts = long_texts(root, tokenizer, longest, batch, number)
    else:
        texts = short_texts(root, batch, number)
    return _texts(texts, tokenizer, longest)


def shuffled_texts(root: Path) -> list[str]:
    """Return every line of models/data, in an order that is the same in every run."""
    files = (root / "models/data").glob("*.txt")
    lines = {line for path in files for line in path.read_text("utf-8").splitlines()}
    texts = sorted(line for line in lines if line.strip())
    random.Random(TEXTS_SEED).shuffle(texts)
    return texts


def short_texts(root: Path, batch: int, number: int) -> list[str]:
    """Return sentences of models/data, the next ones for each number."""
    texts = shuffled_texts(root)
    begin = number * batch
    return [texts[index % len(texts)] for index in range(begin, begin + batch)]


def long_texts(root: Path, tokenizer: Path, longest: int, batch: int, number: int) -> list[str]:
    """Return texts of sentences of models/data; the first has `longest` tokens, or is cut there."""
    draw, source = random.Random(SEED + number), shuffled_texts(root)
    encoder = Tokenizer.from_file(str(tokenizer))
    encoder.no_padding()
    encoder.no_truncation()
    texts = []
    for index in range(batch):
        least = longest if index == 0 else draw.randint(longest // SHORTEST_SHARE, longest)
        text = ""
        while len(encoder.encode(text).ids) < least:
            text = f"{text} {draw.choice(source)}".strip()
        texts.append(text)
    return texts


def _texts(texts: Sequence[str], tokenizer: Path, longest: int) -> Workload:
    encoder = Tokenizer.from_file(str(tokenizer))
    encoder.enable_truncation(max_length=longest)
    encoder.no_padding()
    rows = [encoding.ids for encoding in encoder.encode_batch_fast(list(texts))]
    sequence = max(map(len, rows))
    ids: Array = np.zeros((len(rows), sequence), np.int64)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    body, content_type = text_request(texts, binary=True)
    return Workload(
        shape=Shape(batch=len(rows), sequence=sequence),
        feed={"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)},
        request=Request(body=body, content_type=content_type),
        useful_tokens=int(mask.sum()),
    )


def _images(edge: int, batch: int, number: int) -> Workload:
    random_pixels: Any = np.random.default_rng(SEED + number)
    pixels = random_pixels.standard_normal((batch, 3, edge, edge), dtype=np.float32)
    body, content_type = array_request({"pixel_values": pixels})
    return Workload(
        shape=Shape(batch=batch),
        feed={"pixel_values": pixels},
        request=Request(body=body, content_type=content_type),
        useful_tokens=None,
    )
