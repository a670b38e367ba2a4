"""Tiny checkpoints, their exports as a build makes them, and what their own libraries answer.

`python -m tests.contract.model_exports FOLDER`, in the builder's environment: a folder for each
head and image classifier with `model.onnx`, `tokenizer.json` and `facts.json`; for each embedder
with `vectors.npy` and prompts; `images/` with the files, in the order of their names; texts.json.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onboarding.values import Task

LONGEST, COUNT = 16, 100
ENTITIES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LABELS = ("calm", "glad", "sad")
EMBEDDERS = ("mean-normalize", "max-normalize", "lasttoken", "cls.mean-dense-normalize")
PROMPT = "find a blue train : "
CROPPED = {
    "image_processor_type": "ConvNextImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 32},
    "crop_pct": 0.875,
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
}
IDENTITY = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}


def texts(seed: int, count: int = COUNT) -> list[str]:
    """Return as many texts: also of other scripts, blanks, and more than the longest sequence."""
    from tests.unit.engine_build.tiny import WORDS, sample_texts

    odd = ["ünïcode 火車 a cat", "A CAT, a dog!", "  two   spaces ", " ".join(WORDS), "x" * 400]
    return [*odd, *sample_texts(count - len(odd), seed=seed)]


def pairs() -> list[tuple[str, str]]:
    """Return a query and a text a row, with odd ones on both sides."""
    queries = texts(21, COUNT // 5)
    return [(queries[place % len(queries)], text) for place, text in enumerate(texts(22))]


def classifier_answers(folder: Path) -> list[Any]:
    """Return the pipeline's labels and scores, the highest first."""
    import transformers

    pipe = transformers.pipeline("text-classification", str(folder), device="cpu", top_k=None)
    rows = pipe(texts(20), truncation=True, max_length=LONGEST, batch_size=20)
    return [[[item["label"], item["score"]] for item in row] for row in rows]


def ranker_answers(folder: Path) -> list[Any]:
    """Return the scores of CrossEncoder's predict()."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    model.max_seq_length = LONGEST
    scores: list[Any] = model.predict(pairs(), show_progress_bar=False).tolist()
    return scores


def token_answers(folder: Path) -> list[Any]:
    """Return the pipeline's entities without an aggregation, and with the simple one."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), model_max_length=LONGEST)
    pipe = transformers.pipeline(
        "token-classification", str(folder), tokenizer=tokenizer, device="cpu"
    )

    def answers(strategy: str, name: str) -> list[Any]:
        rows = pipe(texts(20), aggregation_strategy=strategy, batch_size=20)
        return [
            [[item[name], float(item["score"]), item["start"], item["end"]] for item in row]
            for row in rows
        ]

    both = zip(answers("none", "entity"), answers("simple", "entity_group"), strict=True)
    return list(map(list, both))


def image_answers(folder: Path, files: Sequence[bytes]) -> list[Any]:
    """Return the pipeline's labels and scores, the highest first."""
    import transformers
    from PIL import Image

    from tests.unit.engine_build.pictures import CLASSES

    pipe = transformers.pipeline("image-classification", str(folder), device="cpu")
    rows = [pipe(Image.open(io.BytesIO(file)), top_k=len(CLASSES)) for file in files]
    return [[[item["label"], item["score"]] for item in row] for row in rows]


Answers = Callable[[Path], list[Any]]
HEADS: dict[str, tuple[Task, Sequence[str], dict[str, Any], Answers]] = {
    "single": ("text-classification", LABELS, {}, classifier_answers),
    "multi": (
        "text-classification",
        LABELS,
        {"problem_type": "multi_label_classification"},
        classifier_answers,
    ),
    "regression": (
        "text-classification",
        ("stars",),
        {"problem_type": "regression"},
        classifier_answers,
    ),
    "ranker": ("text-ranking", ("relevant",), {}, ranker_answers),
    "raw-ranker": ("text-ranking", ("relevant",), IDENTITY, ranker_answers),
    "tokens": ("token-classification", ENTITIES, {}, token_answers),
}
"""Task, labels, changes of the configuration, and the reference."""


def write_facts(folder: Path, task: str, network: Any, **more: Any) -> None:
    """Write what the tests read of an export."""
    facts = {
        "task": task,
        "labels": network.labels,
        "activation": network.facts["activation"],
        "inputs": [record.model_dump(mode="json") for record in network.inputs],
        "outputs": [record.model_dump(mode="json") for record in network.outputs],
    }
    (folder / "facts.json").write_text(json.dumps(facts | more))


def write_head(folder: Path, name: str) -> None:
    """Write the export of a model with a head."""
    from engine_build.sources.export import export
    from engine_build.sources.source_model import SourceModel
    from tests.unit.engine_build.architectures import write_pair_template, write_text_checkpoint

    task, labels, changes, answers = HEADS[name]
    head = "ForTokenClassification" if task == "token-classification" else None
    checkpoint = write_text_checkpoint(
        folder / "checkpoint", "BERT", classes=tuple(labels), head=head, **changes
    )
    write_pair_template(checkpoint)
    if name == "ranker":
        # The other ranker's tokenizer does not tell a pair's second text from its first.
        configuration = checkpoint / "tokenizer_config.json"
        names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        configuration.write_text(json.dumps(json.loads(configuration.read_text()) | names))
    samples: list[Any] = pairs() if task == "text-ranking" else texts(20)
    source = SourceModel(checkpoint, longest=LONGEST, task=task)
    network = export(source, samples, folder, longest=LONGEST)
    write_facts(folder, task, network, samples=samples, expected=answers(checkpoint))


def write_image_model(folder: Path, name: str, files: Sequence[bytes]) -> None:
    """Write the export of an image classifier."""
    from engine_build.sources.export import export_image_network
    from engine_build.sources.image_model import ImageModel
    from tests.unit.engine_build.pictures import PROCESSOR, write_image_checkpoint

    architecture, processor, changes = {
        "vit": ("ViT", PROCESSOR, {}),
        "resnet": ("ResNet", CROPPED, {"problem_type": "multi_label_classification"}),
    }[name]
    checkpoint = write_image_checkpoint(
        folder / "checkpoint", architecture, processor=processor, **changes
    )
    network = export_image_network(ImageModel(checkpoint), files[:20], folder)
    assert network.image_processor is not None
    processor = network.image_processor.model_dump(mode="json")
    expected = image_answers(checkpoint, files)
    write_facts(
        folder, "image-classification", network, image_processor=processor, expected=expected
    )


def write_embedder_export(folder: Path, name: str, checkpoint: Path, samples: list[str]) -> None:
    """Write the export of what sentence-transformers saves; the last one has a default prompt."""
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize

    from engine_build.sources.export import export
    from engine_build.sources.source_model import SourceModel
    from tests.unit.engine_build.embedders import dense, pooling, write_embedder
    from tests.unit.engine_build.tiny import WIDTH

    modes, *more = name.split("-")
    width = WIDTH * len(modes.split("."))
    made = {"normalize": Normalize, "dense": lambda: dense(width)}
    modules = [pooling(*modes.split(".")), *(made[head]() for head in more)]
    prompts: dict[str, Any] = {}
    if name == EMBEDDERS[-1]:
        prompts = {"prompts": {"query": PROMPT}, "default_prompt_name": "query"}
    saved = write_embedder(folder / "saved", checkpoint, *modules, **prompts)
    export(SourceModel(saved, longest=32), samples[:30], folder, longest=32)
    np.save(folder / "vectors.npy", SentenceTransformer(str(saved), device="cpu").encode(samples))


def main(root: Path) -> None:
    """Write every export."""
    import torch
    import transformers

    from tests.unit.engine_build.pictures import encoded, picture, picture_files, write_pictures
    from tests.unit.engine_build.tiny import sample_texts, write_checkpoint

    # Tiny models: a second thread only waits.
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in HEADS:
        (root / name).mkdir()
        write_head(root / name, name)
    large = encoded(picture(7, size=(1600, 1200)), "JPEG", quality=90)
    pictures = [*picture_files(COUNT - 2), large, encoded(picture(8, size=(1, 40)))]
    write_pictures(root / "images", pictures)
    for name in ("vit", "resnet"):
        (root / name).mkdir()
        write_image_model(root / name, name, pictures)
    samples = sample_texts(COUNT, seed=3)
    checkpoint = write_checkpoint(root / "embedder-checkpoint")
    for name in EMBEDDERS:
        write_embedder_export(root / name, name, checkpoint, samples)
    (root / "texts.json").write_text(json.dumps(samples))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
