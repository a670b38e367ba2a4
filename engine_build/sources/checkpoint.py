"""The files of a checkpoint folder: its JSON, and the tokenizer checked against the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer, normalizers

from engine_build.datasets.dataset import Array
from engine_build.datasets.text import TOKENIZER_FILE, read_tokenizer
from engine_build.errors import SourceFault, one_line

ADDED = ("cls_token", "sep_token")
"""Tokens that every text gets, where tokenizer_config.json names them."""
ADAPTER = "adapter_config.json"
TOLERANCE = 1e-4
"""Of a network's answers, against those of the checkpoint's own library."""
CAPITALS = 32
"""Texts that are split in capitals too."""


def checkpoint_tokenizer(folder: Path, *, vocabulary: int, padding: int | None) -> Tokenizer:
    """Return the tokenizer of a model. Raises SourceFault when it is another model's.

    `vocabulary` counts the model's rows (a token without one is undefined behaviour on a GPU);
    `padding` is the model's own padding token.
    """
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise SourceFault(
            f"the checkpoint has no {path.name}; save it with a fast tokenizer of transformers."
        )
    tokenizer = read_tokenizer(path)
    tokens = tokenizer.get_vocab(with_added_tokens=True)
    token = max(tokens, key=tokens.__getitem__)
    if tokens[token] >= vocabulary:
        raise SourceFault(
            f"the tokenizer gives token {tokens[token]} ({token!r}), but the model knows "
            f"{vocabulary}; they are not a pair: name a checkpoint whose {path.name} was saved "
            "with its weights."
        )
    known = tokenizer.padding
    if None not in (known, padding) and known["pad_id"] != padding:
        raise SourceFault(
            f"the tokenizer pads with token {known['pad_id']} ({known['pad_token']!r}), but the "
            f"model's padding is {padding}; they are not a pair: save {TOKENIZER_FILE} again with "
            "the model's own padding token."
        )
    if padding is not None and tokenizer.id_to_token(padding) is None:
        raise SourceFault(
            f"the model pads with token {padding}, which the tokenizer does not have; they are not "
            "a pair."
        )
    config, added = read_json(folder / "tokenizer_config.json", {}), tokenizer.encode("a").tokens
    for name in ADDED:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if text is not None and text not in added:
            raise SourceFault(
                f"tokenizer_config.json names {name} {text!r}, but {TOKENIZER_FILE} does not add "
                "it to a text; save the fast tokenizer again, with its post-processor."
            )
    return tokenizer


def transformers_tokenizer(folder: Path, *, trusts_code: bool = False) -> Any:
    """Return the tokenizer that transformers makes of a checkpoint. Raises SourceFault.

    Its class may normalize texts in another way than tokenizer.json does.
    """
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trusts_code
        )
    except Exception as error:
        raise SourceFault(
            f"transformers cannot load the checkpoint's tokenizer ({one_line(error)}); save it "
            "again with transformers."
        ) from error


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


def refuse_other_tokens(tokenizer: Tokenizer, folder: Path, texts: Sequence[str]) -> None:
    """Refuse a tokenizer.json that splits texts otherwise than transformers does.

    Raises SourceFault.
    """
    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_padding()
    own.no_truncation()
    # Users write capitals where a dataset may have none.
    given = [*texts, *(text.upper() for text in texts[:CAPITALS])]
    expected = transformers_tokenizer(folder)(given, verbose=False)["input_ids"]
    for text, encoding, tokens in zip(given, own.encode_batch(given), expected, strict=True):
        if encoding.ids != tokens:
            raise SourceFault(
                f"transformers splits {text[:40]!r} into {len(tokens)} tokens, "
                f"{' '.join(map(str, tokens[:12]))}, but {TOKENIZER_FILE} of the checkpoint into "
                f"{len(encoding.ids)}, {' '.join(map(str, encoding.ids[:12]))}: "
                "tokenizer_config.json names a class or a setting, such as do_lower_case, that "
                f"{TOKENIZER_FILE} does not hold; load the tokenizer with transformers' "
                "AutoTokenizer and save it into the checkpoint."
            )


def are_alike(built: Array, reference: Array) -> bool:
    """Return True where a network's answers are those of the checkpoint's own library."""
    is_alike: bool = built.shape == reference.shape and np.allclose(
        built, reference, rtol=TOLERANCE, atol=TOLERANCE
    )
    return is_alike


def lowercase(tokenizer: Tokenizer) -> None:
    """Make a tokenizer lower-case texts first, as sentence-transformers' `do_lower_case` does."""
    known = tokenizer.normalizer
    parts = list(known) if isinstance(known, normalizers.Sequence) else [known]
    if not any(isinstance(part, normalizers.Lowercase) for part in parts):
        others = [part for part in parts if part is not None]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])


def refuse_adapter(folder: Path) -> None:
    """Refuse a LoRA adapter, which transformers would leave out in silence. Raises SourceFault."""
    if (folder / ADAPTER).is_file():
        base = read_json(folder / ADAPTER, {}).get("base_model_name_or_path")
        raise SourceFault(
            f"{ADAPTER} of the checkpoint names an adapter of {base}, which no build applies; "
            "merge it with peft's merge_and_unload(), and save the model and its tokenizer."
        )


def class_names(config: dict[str, Any]) -> tuple[str, ...] | None:
    """Return class names in the order of the logits; None when config.json has none."""
    names = config.get("id2label")
    if isinstance(names, list):
        raise SourceFault(
            "config.json has id2label as a list, which transformers does not read; write an object "
            f"of numbers and names: {json.dumps(dict(enumerate(names[:3])))[:200]}."
        )
    if not isinstance(names, dict):
        return None
    missing = [index for index in range(len(names)) if str(index) not in names]
    if missing:
        raise SourceFault(
            f"config.json names {len(names)} classes, but not class {missing[0]}; number them from "
            "0."
        )
    labels = tuple(str(names[str(index)]) for index in range(len(names)))
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise SourceFault(
            f"config.json names two classes {twice!r}, which no answer could tell apart; correct "
            "id2label."
        )
    return labels


def read_json(path: Path, default: Any) -> Any:
    """Return a file's content, of the default's type, or the default where there is no file.

    Raises SourceFault.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default
    except (ValueError, RecursionError) as error:
        raise SourceFault(
            f"{path.name} of the checkpoint is no JSON ({error}); fetch or save it again."
        ) from error
    if not isinstance(content, type(default)):
        allowed = "an object" if isinstance(default, dict) else "a list"
        raise SourceFault(
            f"{path.name} of the checkpoint holds {type(content).__name__}, not {allowed}; fetch "
            "or save it again."
        )
    return content
