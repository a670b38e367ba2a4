"""Source models in PyTorch: the references that every network and engine is compared with."""

from __future__ import annotations

import inspect
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed, Sample
from engine_build.datasets.tensors import ImageEncoder
from engine_build.errors import SourceFault, one_line
from engine_build.machine import cores, return_memory
from engine_build.sources.checkpoint import (
    are_alike,
    checkpoint_tokenizer,
    lowercase,
    read_json,
    refuse_adapter,
    transformers_tokenizer,
)
from engine_build.sources.embedding import EmbeddingPipeline, embedding_pipeline, load_head
from engine_build.sources.head import HEADED, head_of, refuse_other_head
from engine_build.sources.image_processor import PIXELS, load_image_processor, read_image_processor
from engine_build.sources.pooling import PoolingHead
from onboarding.manifest import TensorRecord
from onboarding.values import IMAGES

if TYPE_CHECKING:
    from onboarding.values import Task


HEAD_CLASSES: dict[Task, str] = {
    "text-classification": "AutoModelForSequenceClassification",
    "text-ranking": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "image-classification": "AutoModelForImageClassification",
}
"""transformers' class of a checkpoint, by the task of its head."""
T5_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Embedders of encoder-decoder models are the encoder alone, as sentence-transformers loads it."""
POOLER = "pooler."
"""Weights of a head that no task uses; some checkpoints lack them."""


class Classifier(torch.nn.Module):  # type: ignore[misc]
    """A model with a classification head: logits [batch, classes], or of each token."""

    output = "logits"

    def __init__(self, encoder: Any, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.encoder = encoder
        self.inputs = inputs

    def forward(self, *tensors: Any) -> Any:
        """Take the inputs in the order of `inputs`."""
        return self.encoder(**dict(zip(self.inputs, tensors, strict=True))).logits


class SentenceEmbedder(torch.nn.Module):  # type: ignore[misc]
    """An encoder and what follows it: vectors [batch, values] of the last hidden states."""

    output = "sentence_embedding"

    def __init__(self, encoder: Any, inputs: tuple[str, ...], head: PoolingHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.inputs = inputs
        self.head = head

    def forward(self, *tensors: Any) -> Any:
        """Take the inputs in the order of `inputs`."""
        named = dict(zip(self.inputs, tensors, strict=True))
        hidden = self.encoder(**named).last_hidden_state
        return self.head(hidden, named[ATTENTION_MASK])


class LoadedCheckpoint(ABC):
    """A checkpoint in PyTorch; pickled weights and remote code are refused.

    `release` gives the weights' memory back; the next call of `rows` loads them again.
    """

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(cores())
        self.folder = folder
        self._module: Any = None

    @property
    def module(self) -> Any:
        """The model as `torch.nn.Module`, in evaluation mode."""
        if self._module is None:
            self._module = self._load()
        return self._module

    def release(self) -> None:
        """Forget the weights."""
        self._module = None
        return_memory()

    @abstractmethod
    def _load(self) -> Any:
        """Return the module anew, in float32."""


class SourceModel(LoadedCheckpoint):
    """A checkpoint of texts, loaded in float32."""

    def __init__(self, folder: Path, *, longest: int, task: Task = "text-embedding") -> None:
        super().__init__(folder)
        self._task = task
        self._pipeline = embedding_pipeline(folder) if task == "text-embedding" else None
        if self._pipeline is not None:
            _refuse_longer_than_encoded(self._pipeline, longest)
        encoder = load_encoder(folder, task)
        refuse_long_sequences(encoder, longest)
        config = encoder.config
        self.inputs: tuple[str, ...] = ("input_ids", ATTENTION_MASK)
        takes_types = "token_type_ids" in inspect.signature(encoder.forward).parameters
        has_types = takes_types and getattr(config, "type_vocab_size", 0) > 1
        if has_types and task == "text-ranking":
            # Not every tokenizer tells the second text from the first.
            has_types = "token_type_ids" in transformers_tokenizer(folder).model_input_names
        if has_types:
            self.inputs += ("token_type_ids",)
        self.head = head_of(folder, task, scores=getattr(config, "num_labels", None))
        self._module = self._task_module(encoder)
        refuse_broken_weights(self._module)
        self.output = str(self._module.output)
        self.padding: int | None = getattr(config, "pad_token_id", None)
        if self.padding is None and hasattr(encoder, "score"):
            raise SourceFault(
                "config.json of the checkpoint has no pad_token_id, by which "
                f"{type(encoder).__name__} finds the last token of each text of a batch; write the "
                "number of the tokenizer's padding token there, or else of its end-of-text token."
            )
        vocabulary = int(config.get_text_config().vocab_size)
        self.tokenizer = checkpoint_tokenizer(folder, vocabulary=vocabulary, padding=self.padding)
        if self._pipeline is not None and self._pipeline.lowercases:
            lowercase(self.tokenizer)

    def _load(self) -> Any:
        return self._task_module(load_encoder(self.folder, self._task))

    @property
    def answers_tokens(self) -> bool:
        """True when each token of a text has an answer."""
        return self._task == "token-classification"

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values]; the answers of a row's tokens lie side by side."""
        with torch.inference_mode():
            tensors = (torch.from_numpy(feed[name]) for name in self.inputs)
            rows: Array = self.module(*tensors).numpy()
        return rows.reshape(len(rows), -1)

    def _task_module(self, encoder: Any) -> Any:
        if self._pipeline is None:
            return Classifier(encoder, self.inputs).eval()
        heads = [load_head(self.folder, head) for head in self._pipeline.heads]
        head = PoolingHead(self._pipeline.poolings, heads)
        return SentenceEmbedder(encoder, self.inputs, head).eval()


def load_encoder(folder: Path, task: Task) -> Any:
    """Return a checkpoint's model in float32, with the head of its task.

    Raises SourceFault, also where the checkpoint's head is of another task.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    refuse_adapter(folder)
    config = read_json(folder / "config.json", {})
    name = T5_ENCODERS.get(str(config.get("model_type")), "AutoModel")
    if task in HEADED:
        refuse_other_head(folder, config, task)
        name = HEAD_CLASSES[task]
    try:
        encoder, loading = getattr(transformers, name).from_pretrained(
            str(folder),
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:
        raise SourceFault(
            f"the checkpoint cannot be loaded ({one_line(error)}); it must be whole and of "
            "transformers, with safetensors: fetch or save it again."
        ) from error
    # transformers fills what a checkpoint lacks with random numbers.
    prefix, missing = f"{encoder.base_model_prefix}.", loading["missing_keys"]
    needed = sorted(name for name in missing if not name.removeprefix(prefix).startswith(POOLER))
    if needed:
        raise SourceFault(
            f"the checkpoint lacks {len(needed)} weights that {type(encoder).__name__} needs, such "
            f"as {needed[0]}; name a checkpoint that was trained for this task, or correct the "
            "task."
        )
    return encoder


def refuse_broken_weights(module: Any) -> None:
    """Refuse NaN and Inf. Raises SourceFault."""
    for name, weight in module.state_dict().items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise SourceFault(
                f"weight {name.removeprefix('encoder.')} of the source holds NaN or Inf; train or "
                "save the checkpoint again."
            )


def _refuse_longer_than_encoded(pipeline: EmbeddingPipeline, longest: int) -> None:
    """Texts are cut where `encode()` cuts them, so that long ones get its vectors."""
    if pipeline.longest is not None and longest > pipeline.longest:
        raise SourceFault(
            f"the checkpoint cuts texts at {pipeline.longest:g} tokens (max_seq_length in its "
            "sentence_bert_config.json, or model_max_length in its tokenizer_config.json), but a "
            f"profile goes up to {longest}; lower `sequence` in the model file, or raise the "
            "checkpoint's limit."
        )


def refuse_long_sequences(encoder: Any, longest: int) -> None:
    """RoBERTa and models like it count positions from the padding token's number + 1."""
    positions: int | None = getattr(encoder.config, "max_position_embeddings", None)
    offsets = [
        module.padding_idx + 1
        for name, module in encoder.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    ]
    # XLNet writes -1: it counts no positions.
    if positions is not None and positions > 0 and longest > positions - max(offsets, default=0):
        raise SourceFault(
            f"the source takes at most {positions - max(offsets, default=0)} tokens, but a profile "
            f"goes up to {longest}; lower `sequence` in the model file."
        )


class ImageModel(LoadedCheckpoint):
    """A checkpoint with an image classification head, loaded in float32."""

    inputs: tuple[str, ...] = (PIXELS,)
    output = Classifier.output

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        channels = read_json(folder / "config.json", {}).get("num_channels", 3)
        if channels != 3:
            raise SourceFault(
                f"config.json of the checkpoint has num_channels {channels}; images have 3: name a "
                "checkpoint that was trained on colour images."
            )
        encoder = load_encoder(folder, IMAGES)
        self.head = head_of(folder, IMAGES, scores=getattr(encoder.config, "num_labels", None))
        assert self.head is not None and self.head.labels is not None
        logits = TensorRecord(name=self.output, datatype="FP32", shape=(-1, len(self.head.labels)))
        self.processor = read_image_processor(folder, logits)
        self._module = Classifier(encoder, self.inputs).eval()
        refuse_broken_weights(self._module)
        # Most models take one size of images alone.
        self.rows({PIXELS: np.zeros((1, *self.processor.input.shape[1:]), np.float32)})

    def _load(self) -> Any:
        return Classifier(load_encoder(self.folder, IMAGES), self.inputs).eval()

    @property
    def encoder(self) -> ImageEncoder:
        """What makes feeds of images, as servers do."""
        return ImageEncoder(self.processor)

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, labels]. Raises SourceFault for another size of images."""
        with torch.inference_mode():
            try:
                rows: Array = self.module(torch.from_numpy(feed[PIXELS])).numpy()
            except (RuntimeError, ValueError) as error:
                height, width = feed[PIXELS].shape[2:]
                raise SourceFault(
                    f"the model fails on images of {height} x {width} pixels, as its processor "
                    f"makes them ({str(error).splitlines()[0][:200]}); they are not a pair: "
                    "correct preprocessor_config.json."
                ) from error
        return rows

    def pipeline_rows(self) -> Callable[[Sequence[Sample]], Array]:
        """Return what gives the logits of transformers' own pipeline, [files, labels]."""
        processor = load_image_processor(self.folder)

        def answer(files: Sequence[Sample]) -> Array:
            from PIL import Image

            images = []
            for file in files:
                assert isinstance(file, bytes)
                images.append(transformers.image_utils.load_image(Image.open(io.BytesIO(file))))
            pixels = [processor(images=image, return_tensors="np")[PIXELS] for image in images]
            return self.rows({PIXELS: np.concatenate(pixels)})

        return answer


def refuse_other_logits(built: Array, reference: Array) -> None:
    """Refuse a network whose logits are not those of the pipeline. Raises SourceFault."""
    if are_alike(built, reference):
        return
    difference = np.abs(built - reference).max() if built.shape == reference.shape else np.inf
    raise SourceFault(
        f"the network's logits differ from those of transformers' pipeline by {difference:.2g}; "
        "export the checkpoint to ONNX yourself, and name the file as `source.onnx`."
    )
