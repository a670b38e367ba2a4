"""Each token's class and probability, in rows of one width."""

from __future__ import annotations

import numpy as np

from container.server.engines.heads import TokenClassEngine


class Logits:
    slots, inline_rows, max_rows, sequence_buckets = 1, 2, 3, None

    def run(self, prepared, slot):
        logits = np.zeros((2, prepared, 4), np.float32)
        logits[:, :, 3] = 50
        return (logits,)


def test_rows_are_as_wide_as_the_longest_sequence_whatever_their_batch():
    engine = TokenClassEngine(Logits(), longest=6)
    for tokens in (2, 6):
        classes, scores = engine.run(tokens, 0)
        assert classes.shape == scores.shape == (2, 6)
        assert (classes[:, :tokens] == 3).all() and np.allclose(scores[:, :tokens], 1)
        assert not classes[:, tokens:].any() and not scores[:, tokens:].any()
    assert (engine.inline_rows, engine.max_rows) == (2, 3)
