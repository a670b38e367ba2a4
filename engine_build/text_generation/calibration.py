"""Calibration texts as llm-compressor takes them: read, and tokenized, as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_build.errors import InputRefused
from engine_build.text_generation.language_model import sample_tokens
from onboarding.text_generation.texts import TextsError, read_texts

LONGEST_SAMPLE = 2048
"""Tokens; llm-compressor's examples use as many."""
LEAST_TOKENS = 2


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The first samples of a file; of each the first tokens."""

    path: Path
    samples: int
    most_tokens: int = LONGEST_SAMPLE

    def token_lists(self, tokenizer: Any) -> Iterator[list[int]]:
        """Yield the tokens of each sample. Raises InputRefused and SourceFault."""
        try:
            for sample in read_texts(self.path, self.samples):
                tokens = sample_tokens(tokenizer, sample, self.most_tokens)
                if len(tokens) >= LEAST_TOKENS:
                    yield tokens
        except TextsError as error:
            raise InputRefused(f"calibration texts {self.path.name}: {error}.") from error

    def loader(self, tokenizer: Any) -> Any:
        """Return a DataLoader that reads the file anew each time; a batch is one sample.

        Raises InputRefused for a file without samples.
        """
        import torch
        from torch.utils.data import DataLoader, IterableDataset

        texts, count = self, sum(1 for _ in self.token_lists(tokenizer))
        if count == 0:
            raise InputRefused(f"calibration texts {self.path.name} hold no sample; add texts.")

        class TokenLists(IterableDataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return count

            def __iter__(self) -> Iterator[dict[str, Any]]:
                for tokens in texts.token_lists(tokenizer):
                    ids = torch.tensor([tokens])
                    yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

        return DataLoader(TokenLists(), batch_size=None)
