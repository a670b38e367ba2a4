"""A tokenizer and a model that are a pair, and some that are not."""

from __future__ import annotations

import json

import pytest

from engine_build.datasets.text import TextEncoder, save_padded
from engine_build.errors import SourceFault
from engine_build.sources.checkpoint import (
    checkpoint_tokenizer,
    refuse_adapter,
    refuse_other_tokens,
)
from tests.unit.engine_build.architectures import VOCABULARY
from tests.unit.engine_build.tiny import WORDS, word_tokenizer, write_tokenizer_config


@pytest.fixture
def folder(tmp_path):
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def change_tokenizer(folder, **changes):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def tokenizer_of(folder, vocabulary=VOCABULARY, padding=0):
    return checkpoint_tokenizer(folder, vocabulary=vocabulary, padding=padding)


def test_tokenizer_of_the_model_is_saved_with_the_padding_of_a_batch(folder, tmp_path):
    (tmp_path / "served").mkdir()
    tokenizer_of(folder, vocabulary=VOCABULARY + 30)  # a table may have more rows
    saved = json.loads(save_padded(tokenizer_of(folder), tmp_path / "served", 0).read_text())
    assert (saved["padding"]["strategy"], saved["padding"]["pad_id"]) == ("BatchLongest", 0)


def test_padding_is_taken_from_the_model_when_the_file_has_none(folder, tmp_path):
    path = save_padded(tokenizer_of(change_tokenizer(folder, padding=None), padding=3), tmp_path, 3)
    ids = TextEncoder(path, inputs=("input_ids", "attention_mask"), longest=8).feed(["a cat", "a"])[
        "input_ids"
    ]
    assert ids[1, -1] == 3


@pytest.mark.parametrize(
    ("changes", "facts", "fault"),
    [
        (
            {},
            {"vocabulary": VOCABULARY - 5},
            rf"gives token {VOCABULARY - 1} \('today'\), but the model knows {VOCABULARY - 5}",
        ),
        (
            {},
            {"padding": 1},
            r"pads with token 0 \('\[PAD\]'\), but the model's padding is 1; they are not a pair",
        ),
        (
            {"padding": None},
            {"vocabulary": 1000, "padding": 900},
            r"the model pads with token 900, which the tokenizer does not have",
        ),
    ],
)
def test_refuses_the_tokenizer_of_another_model(folder, changes, facts, fault):
    with pytest.raises(SourceFault, match=fault):
        tokenizer_of(change_tokenizer(folder, **changes), **facts)


def test_refuses_a_tokenizer_without_padding(folder, tmp_path):
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"]["vocab"]["nothing"] = state["model"]["vocab"].pop("[PAD]")
    words = r"has no padding token, which batches need; write the number of one as pad_token_id"
    with pytest.raises(SourceFault, match=words):
        folder = change_tokenizer(folder, padding=None, model=state["model"])
        save_padded(tokenizer_of(folder, padding=None), tmp_path)


def test_refuses_a_tokenizer_that_does_not_add_its_special_tokens(folder):
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}})
    )
    tokenizer_of(folder)
    words = r"names cls_token '\[CLS\]', but tokenizer.json does not add it to a text"
    with pytest.raises(SourceFault, match=words):
        tokenizer_of(change_tokenizer(folder, post_processor=None))


def test_refuses_a_tokenizer_that_is_damaged_or_not_there(folder):
    path = folder / "tokenizer.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(SourceFault, match=r"tokenizer.json cannot be read"):
        tokenizer_of(folder)
    path.unlink()
    with pytest.raises(SourceFault, match=r"has no tokenizer.json; save it with a fast tokenizer"):
        tokenizer_of(folder)


def test_tokens_are_those_of_transformers(folder):
    write_tokenizer_config(folder)
    refuse_other_tokens(tokenizer_of(folder), folder, ["a red cat", " ".join(WORDS * 3), ""])


def test_refuses_a_tokenizer_that_transformers_reads_in_another_way(folder):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    change_tokenizer(folder, normalizer=None)
    with pytest.raises(SourceFault, match=r"splits 'A CAT' into \d+ tokens, .* do_lower_case"):
        refuse_other_tokens(tokenizer_of(folder), folder, ["a cat"])


def test_refuses_a_tokenizer_of_remote_code_without_asking(folder):
    custom = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(custom))
    (folder / "own.py").write_text("raise SystemExit('the code must not run')")
    with pytest.raises(SourceFault, match="transformers cannot load the checkpoint's tokenizer"):
        refuse_other_tokens(tokenizer_of(folder), folder, ["a cat"])


def test_refuses_an_adapter_beside_its_model(tmp_path):
    refuse_adapter(tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"base_model_name_or_path": "owner/base", "peft_type": "LORA"}))
    with pytest.raises(SourceFault, match=r"an adapter of owner/base, .* merge it"):
        refuse_adapter(tmp_path)
