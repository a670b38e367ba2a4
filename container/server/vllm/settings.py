"""What the front knows of the engine: the SM_VLLM_* variables that the plan set for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from container.server.settings import SettingsFault

NAME, LENGTH = "SM_VLLM_SERVED_MODEL_NAME", "SM_VLLM_MAX_MODEL_LEN"
SEQUENCES, QUEUED = "SM_VLLM_MAX_NUM_SEQS", "SM_VLLM_MAX_NUM_QUEUED_REQS"
ADAPTERS = "SM_VLLM_ENABLE_LORA"
DEFAULT_SEQUENCES = 256
"""vLLM's own number of sequences that run at once on a small GPU; it has 1024 on a large one."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """The engine's limits, as its arguments say them."""

    model: str
    """The name that requests ask for; adapters have others."""
    max_model_len: int | None = None
    """Tokens of prompt and answer; None: the checkpoint says it, and vLLM checks it."""
    most_sequences: int = 2 * DEFAULT_SEQUENCES
    """Sequences that run or wait at once; a request of n answers to p prompts has n x p."""
    adapters: bool = False


def read_engine_settings(environ: Mapping[str, str]) -> EngineSettings:
    """Return the engine's settings in an environment. Raises SettingsFault.

    vLLM counts what runs and what waits against max_num_queued_reqs. Without it twice as many
    sequences are let in as the engine runs at once.
    """
    faults: list[str] = []
    model = environ.get(NAME, "").strip()
    if not model:
        faults.append(f"{NAME} is not set; it is the name that requests ask for.")
    counts = {name: _count(environ, name, faults) for name in (LENGTH, SEQUENCES, QUEUED)}
    if faults:
        raise SettingsFault("\n".join(faults))
    sequences, queued = counts[SEQUENCES], counts[QUEUED]
    twice = 2 * (DEFAULT_SEQUENCES if sequences is None else sequences)
    return EngineSettings(
        model=model,
        max_model_len=counts[LENGTH],
        most_sequences=twice if queued is None else queued,
        adapters=environ.get(ADAPTERS, "").strip().lower() == "true",
    )


def _count(environ: Mapping[str, str], name: str, faults: list[str]) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) > 0:
        return int(text)
    faults.append(f"{name} is {text[:40]!r}; it must be a whole number from 1 on.")
    return None
