"""Small random models of the architectures that engine_build supports.

Text checkpoints, and vision networks as ONNX files.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, processors

from tests.unit.engine_build.tiny import (
    SPECIAL,
    WORDS,
    sample_texts,
    word_tokenizer,
    write_tokenizer_config,
)

CLASSES = ("calm", "glad", "sad")
VOCABULARY = len(SPECIAL) + len(WORDS)
SMALL: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BERT = {"hidden_size": 32, "max_position_embeddings": 64, **SMALL}
DISTILBERT = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}
ROBERTA = {"max_position_embeddings": 34, "type_vocab_size": 1, "pad_token_id": 1}
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("Bert", BERT),
    "DistilBERT": ("DistilBert", DISTILBERT | {"max_position_embeddings": 64}),
    "RoBERTa": ("Roberta", BERT | ROBERTA),
    "MiniLM": ("Bert", BERT | {"hidden_size": 384, "num_attention_heads": 12}),
}
"""transformers' class, its configuration."""


def write_pair_template(checkpoint: Path) -> None:
    """Let a checkpoint's tokenizer tell a pair's second text from its first."""
    path = checkpoint / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(path))


def write_text_checkpoint(
    folder: Path,
    name: str,
    *,
    classes: tuple[str, ...] = (),
    head: str | None = None,
) -> Path:
    """A checkpoint with a head when there are classes, by default of whole texts.

    Weights are spread, so that texts get different answers.
    """
    torch.manual_seed(0)
    kind, settings = TEXT[name]
    indices = {name: index for index, name in enumerate(classes)}
    labels = {"id2label": dict(enumerate(classes)), "label2id": indices}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCABULARY,
        initializer_range=1.2 / settings.get("hidden_size", 32) ** 0.5,
        **settings | (labels if classes else {}),
    )
    if head is None:
        head = "ForSequenceClassification" if classes else "Model"
    model = getattr(transformers, f"{kind}{head}")(config).eval()
    tokenizer = _roberta_tokenizer() if name == "RoBERTa" else word_tokenizer()
    if classes:
        _balance(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder, "<pad>" if name == "RoBERTa" else "[PAD]")
    return folder


def _balance(model: Any, tokenizer: Any) -> None:
    """Sets the head's bias so that every class occurs."""
    head = getattr(model.classifier, "out_proj", model.classifier)
    texts = [torch.tensor([tokenizer.encode(text).ids[:14]]) for text in sample_texts(40, seed=9)]
    with torch.no_grad():
        logits = [model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits for ids in texts]
        head.bias -= (
            torch.cat([rows.reshape(-1, rows.shape[-1]) for rows in logits]).median(0).values
        )


def _roberta_tokenizer() -> Any:
    """RoBERTa's habit: <s> is 0, the padding token 1."""
    state = json.loads(word_tokenizer().to_str())
    vocabulary = state["model"]["vocab"]
    for token in SPECIAL:
        del vocabulary[token]
    state["model"]["vocab"] = {"<s>": 0, "<pad>": 1, "</s>": 2, "[UNK]": 3} | vocabulary
    state["padding"] = None
    state["post_processor"] = None
    tokenizer = type(word_tokenizer()).from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


class Residual(torch.nn.Module):
    """A small ResNet: convolutions, batch normalisation, a residual, pooling, a classifier."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        nn = torch.nn
        first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU())
        second, third = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.block = nn.Sequential(second, nn.BatchNorm2d(8), nn.ReLU(), third)
        self.head = torch.nn.Linear(8, classes)

    def forward(self, image: Any) -> Any:
        """[batch, 3, 16, 16] to [batch, classes]."""
        hidden = self.stem(image)
        hidden = torch.relu(hidden + self.block(hidden))
        return self.head(hidden.mean((2, 3)))


class Vision(torch.nn.Module):
    """A ViT with a classification head, its answer alone."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        sizes = {"hidden_size": 32, "image_size": 16, "patch_size": 4, "num_labels": classes}
        config = transformers.ViTConfig(
            **sizes, **SMALL, initializer_range=0.2, attn_implementation="eager"
        )
        self.model = transformers.ViTForImageClassification(config)

    def forward(self, image: Any) -> Any:
        """[batch, 3, 16, 16] to [batch, classes]."""
        return self.model(pixel_values=image).logits


VISION = {"ViT": Vision, "ResNet": Residual}


def images(count: int, *, seed: int) -> Any:
    """Stripes of random width, strength and colour, with noise: float32 [count, 3, 16, 16]."""
    random = np.random.default_rng(seed)
    stripes = np.sin(np.arange(16) * random.uniform(0.1, 3, (count, 3, 1, 1)))
    noise = random.normal(0, 0.3, (count, 3, 16, 16))
    return (noise + stripes * random.normal(0, 2, (count, 3, 1, 1))).astype(np.float32)


def write_vision_network(path: Path, name: str) -> Path:
    """An ONNX file, opset 17, with a dynamic batch."""
    torch.manual_seed(0)
    module = VISION[name](len(CLASSES)).eval()
    head = module.head if name == "ResNet" else module.model.classifier
    with torch.no_grad():
        head.bias -= module(torch.from_numpy(images(64, seed=9))).median(0).values
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.zeros(2, 3, 16, 16),),
            str(path),
            input_names=["image"],
            output_names=["scores"],
            dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    return path
