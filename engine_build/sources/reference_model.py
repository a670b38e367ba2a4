"""A checkpoint as sentence-transformers loads it: the reference of networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from engine_build.errors import SourceFault, one_line


def load_reference_model(
    kind: Literal["SentenceTransformer", "CrossEncoder"], folder: Path, longest: int
) -> Any:
    """Return the model in float32 on the CPU; inputs are cut at `longest` tokens.

    Raises SourceFault.
    """
    import sentence_transformers
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    loading = {"attn_implementation": "eager", "dtype": torch.float32, "use_safetensors": True}
    try:
        model = getattr(sentence_transformers, kind)(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs=loading,
        )
        model.max_seq_length = longest
    except Exception as error:
        raise SourceFault(
            f"sentence-transformers cannot load the checkpoint as a {kind} ({one_line(error)}), so "
            "there is no reference; save it again with sentence-transformers."
        ) from error
    return model
