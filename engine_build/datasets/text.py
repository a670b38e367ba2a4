"""Texts as a network's inputs, and tokenizer.json, its padding made explicit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from string import punctuation
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Encoder, Feed, Sample, Shape
from engine_build.errors import SourceFault

TEXT_INPUTS = ("input_ids", ATTENTION_MASK, "token_type_ids")
TOKENIZER_FILE = "tokenizer.json"
PADDING_TOKENS = ("[PAD]", "<pad>", "<|pad|>")
"""Names of padding tokens where nothing else says which it is."""
REPEATED_WORDS = 256
"""Words of a dataset that are repeated, evenly from all of it."""
LONGEST_WORD = 20
TIMES = (4, 8, 16, 32)
"""How often a word is repeated."""


class TextEncoder(Encoder):
    """A checkpoint's tokenizer, which puts a prompt before every text.

    Pads to the longest text of a batch, and cuts at the longest sequence served.
    """

    def __init__(
        self,
        path: Path,
        *,
        inputs: Sequence[str],
        longest: int,
        prompt: str = "",
        answers_tokens: bool = False,
    ) -> None:
        """`answers_tokens`: the network answers each token, and not each text."""
        self._tokenizer = read_tokenizer(path)
        self._tokenizer.enable_padding(**padding(self._tokenizer))
        self._tokenizer.enable_truncation(max_length=longest)
        self._inputs = tuple(inputs)
        self._prompt = prompt
        self.longest = longest
        self._answers_tokens = answers_tokens
        probe = self._tokenizer.encode("a")
        marks = zip(probe.ids, probe.special_tokens_mask, strict=True)
        self._special = tuple({token for token, is_special in marks if is_special})

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """Return int64 arrays [texts, tokens of the longest], by input name."""
        encodings = self._tokenizer.encode_batch_fast(self._texts(samples))
        arrays = {
            "input_ids": [encoding.ids for encoding in encodings],
            ATTENTION_MASK: [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        return {name: np.array(arrays[name], dtype=np.int64) for name in self._inputs}

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Repeat real tokens until every row has exactly that many and none is padding."""
        assert shape.sequence is not None
        feed = self.feed(samples)
        tokens = feed["input_ids"][feed[ATTENTION_MASK] == 1]
        return self._unpadded(np.resize(tokens, (shape.batch, shape.sequence)))

    def length(self, sample: Sample) -> int:
        """Return the characters, which order texts nearly as tokens do and cost nothing."""
        return sum(map(len, sample)) if isinstance(sample, tuple) else len(sample)

    def repetitions(self, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        """Return texts, or pairs of texts, of one word or of one punctuation mark, repeated."""
        pairs = [(sample,) if isinstance(sample, str) else sample for sample in samples]
        texts = [text for pair in pairs if isinstance(pair, tuple) for text in pair]
        if not texts:
            return ()
        short = (word for text in texts for word in text.split() if len(word) <= LONGEST_WORD)
        words = list(dict.fromkeys(short))
        words = words[:: max(1, -(-len(words) // REPEATED_WORDS))]
        repeated = [
            " ".join([word] * times) for word, times in zip(words, cycle(TIMES), strict=False)
        ]
        repeated += [mark * times for mark, times in zip(punctuation, cycle(TIMES), strict=False)]
        paired = isinstance(samples[0], tuple)
        return tuple((text, text) if paired else text for text in repeated)

    def aligned(self, rows: Array, feed: Feed) -> Array:
        """Return the answers of tokens at their places in the longest sequence, 0 elsewhere.

        Padding and the tokens that every text gets have no answer.
        """
        if not self._answers_tokens:
            return rows
        mask = (feed[ATTENTION_MASK] == 1) & ~np.isin(feed["input_ids"], self._special)
        count, tokens = mask.shape
        values = rows.reshape(count, tokens, -1)
        whole: Array = np.zeros((count, self.longest, values.shape[2]), rows.dtype)
        whole[:, :tokens] = values * mask[:, :, None]
        return whole.reshape(count, -1)

    def largest_token(self) -> Feed:
        """Return one row of the vocabulary's last token: a smaller vocabulary fails on it."""
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        return self._unpadded(np.full((1, 1), largest, dtype=np.int64))

    def cut(self, samples: Sequence[Sample]) -> int:
        """Return how many of the texts are longer than the longest sequence."""
        encodings = self._tokenizer.encode_batch(self._texts(samples))
        return sum(bool(encoding.overflowing) for encoding in encodings)

    def _texts(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return texts with their prompt; pairs have none."""
        return [
            f"{self._prompt}{sample}" if isinstance(sample, str) else sample for sample in samples
        ]

    def _unpadded(self, ids: Array) -> Feed:
        values = (ids, np.ones_like(ids), np.zeros_like(ids))
        feed = dict(zip(TEXT_INPUTS, values, strict=True))
        return {name: feed[name] for name in self._inputs}


def read_tokenizer(path: Path) -> Tokenizer:
    """Return a tokenizer of the `tokenizers` library. Raises SourceFault."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise SourceFault(
            f"{path.name} cannot be read ({error}); the source must bring a fast tokenizer's file."
        ) from error


def padding(tokenizer: Tokenizer, token: int | None = None) -> dict[str, Any]:
    """Return what fills the rows of a batch: pad_id, pad_token, pad_type_id.

    `token` is the model's own padding token. Raises SourceFault where there is none.
    """
    known = tokenizer.padding
    if known is not None:
        return {name: known[name] for name in ("pad_id", "pad_token", "pad_type_id")}
    if token is None:
        ids = (tokenizer.token_to_id(name) for name in PADDING_TOKENS)
        token = next((number for number in ids if number is not None), None)
    if token is None:
        raise SourceFault(
            "the tokenizer has no padding token, which batches need; write the number of one as "
            "pad_token_id into the checkpoint's config.json (its end-of-text token will do: the "
            f"mask leaves padding out), or set `padding` in {TOKENIZER_FILE}."
        )
    return {"pad_id": token, "pad_token": tokenizer.id_to_token(token), "pad_type_id": 0}


def save_padded(tokenizer: Tokenizer, folder: Path, token: int | None = None) -> Path:
    """Write tokenizer.json that pads rows to the longest; every reader pads with the same token."""
    tokenizer.enable_padding(**padding(tokenizer, token))
    path = folder / TOKENIZER_FILE
    tokenizer.save(str(path), pretty=False)
    return path
