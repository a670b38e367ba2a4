"""Files that archives carry decide their bytes, and no key but RECIPE_VERSION sees them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from onboarding.keys import RECIPE_VERSION

FOLDER = Path(__file__).resolve().parents[3] / "container" / "triton"
CARRIED = (
    "answer_check.py",
    "head_backend.py",
    "heads.py",
    "image_backend.py",
    "image_requests.py",
    "images.py",
    "manifest_check.py",
    "onnxruntime_backend.py",
    "processing.py",
    "processing_backend.py",
    "tokenizer.py",
)
PINNED = {
    1: "375b86e1a925bdf9b2ff9f88e0ddf2e14f9e83e88323d47673705f9908b7a888",
    2: "30f08a2f195416cc065d650cb2f5ccdbd5f37655038576e4a4dc1bcdf86393af",
    4: "aaecc11ed4f4f19fc18a635d143eb88bd977f655169cb043592ca6e9e7f1a649",
}
"""The digest of the carried files, one after the other, by recipe version; version 1 carried one.

When a file changes, raise RECIPE_VERSION and add a row. Row 4 was written anew when archives began
to be signed: an engine of before is served as before, and is unsigned where signatures are asked
for, so no key had to change. So it was when requests began to name prompts, when a user's code
came, when images did, and when ensembles did: an archive of before holds none. So it was when code
that called models went, and archives for several GPUs, which no endpoint deployed: what is left
runs as before. So it was when a NumPy that Triton's stub misreads began to be refused, and indexes
beyond a table: an engine of before answers right requests as before. So it was when the two readers
of texts became one, and when tokenizers began to warm up. With heads only classifiers, whose
answers changed, have new keys; with exact sums of INT8, engines of CPUs that may hold it.
"""


def test_recipe_version_names_the_files_that_archives_carry():
    carried = b"".join((FOLDER / name).read_bytes() for name in CARRIED)
    assert hashlib.sha256(carried).hexdigest() == PINNED.get(RECIPE_VERSION)


def test_every_file_for_an_archive_is_pinned():
    assert tuple(sorted(path.name for path in FOLDER.rglob("*.py"))) == CARRIED
