"""Texts that a new model starts with, until its own users' texts replace them.

Each set holds sentences, texts of one to three words, questions, code, numbers, punctuation and
more than eight languages, so mixed that its first lines hold all of them; no line stands in two
sets. They are the first lines of models/data/, whose README says where those come from.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

Kind = Literal["calibration", "search", "validation"]


def starter_texts(kind: Kind) -> str:
    """Return a dataset file's text, one sample a line.

    There are 256 to calibrate, 128 to search and 400 to validate.
    """
    folder = resources.files("onboarding.data").joinpath("texts")
    return folder.joinpath(f"{kind}.txt").read_text(encoding="utf-8")


def evaluation_path() -> Path:
    """Return the file of English paragraphs on which text generators are judged by default.

    They were written for it and stand nowhere else, so that no model has learnt them.
    """
    return Path(str(resources.files("onboarding.data").joinpath("texts", "evaluation.txt")))
