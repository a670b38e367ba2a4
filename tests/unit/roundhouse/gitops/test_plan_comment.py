"""A plan as a comment: complete, short enough, and safe whatever its words hold."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from roundhouse.errors import RoundhouseError
from roundhouse.gitops.markdown import MOST_CHARACTERS
from roundhouse.gitops.plan_comment import (
    COMMENT_MARKER,
    comment,
    require_head,
)
from roundhouse.gitops.plan_document import Plan
from tests.unit.roundhouse.gitops.plans import endpoint, plan

HOSTILE = (
    "@everyone", "#12", "GH-7", "!7", "~bug", "$3", "%1", "&2", "a\n\n# Title", "\r| a | b |\r",
    "<img src=x onerror=1>", "<!-- roundhouse:plan -->", "</details>", "-->", "[a](http://x)",
    "![a](x)", "`rm -rf /`", "```\n", "~~~", "||", "\\", "\\|", "a\\", "https://example.com",
    "HTTPS://EXAMPLE.COM", "www.example.com", "WWW.example.com", "me@example.com", "&lt;b&gt;",
    "&#64;all", "\u202egnp.exe", "\u2066x", "\u200b@a", "- a", "+ a", "1. a", "1) a", "> a", "---",
    "===", "***", "    code", "\t\tcode", "a  \nb", "\x00", "\x1b[31m", "\u2028", "\ue000", "𝕏" * 9,
    "/close", "a" * 300, "<" * 200, "|" * 200, "[" * 200, "$$x$$", "$`x`$", "[^1]: a", "[^1]",
    "[x]: http://x", "{{ x }}", "${{ github.token }}", "%0A::set-output name=a::b", "::error::x",
)  # fmt: skip
PIECES = st.lists(st.sampled_from((*HOSTILE, " ", "a", "|", "`", "\n", "@b", "<", "*")), max_size=6)
WORDS = st.one_of(PIECES.map("".join), st.text(max_size=200))
PARSER = MarkdownIt("commonmark").enable("table")
OUR_HTML = re.compile(r"<!-- roundhouse:plan -->|<details><summary>\w+: \d+</summary>|</details>")


@lru_cache(maxsize=1)
def tokens(text):
    """Return what a text is parsed to."""
    return PARSER.parse(text)


def shape(text):
    """Return the kinds of all blocks of a comment, cell by cell, and what stands in them."""
    found = []
    for token in tokens(text):
        found.append(token.type)
        found += [f"  {child.type}" for child in token.children or () if child.type != "text"]
    return found


def html(text):
    """Return the HTML of a comment that is not ours."""
    blocks = list(tokens(text))
    inline = [child for token in blocks for child in token.children or ()]
    raw = [token.content for token in (*blocks, *inline) if token.type.startswith("html")]
    return OUR_HTML.sub("", "".join(raw)).strip()


def visible_words(text):
    """Return the words that a reader sees, and that the forge looks through for references."""
    return "\n".join(
        child.content
        for token in tokens(text)
        for child in token.children or ()
        if child.type in ("text", "code_inline", "text_special")
    )


def hostile_plan(words):
    return plan(endpoint(name=words, text=words), ref=words or "x")


PLAIN_SHAPE = shape(comment(hostile_plan("n")))


@settings(max_examples=150, deadline=None)
@given(WORDS)
def test_hostile_words_stay_words(words):
    text = comment(hostile_plan(words))
    assert len(text) <= MOST_CHARACTERS
    # Markdown gives a piece of text that a backslash divides as several.
    assert [kind for kind in shape(text) if kind != "  text_special"] == PLAIN_SHAPE
    assert html(text) == ""
    assert not re.search(
        r"[@#](?!\u200b)|://(?!\u200b)|www\.(?!\u200b)", visible_words(text), re.IGNORECASE
    )
    assert not re.search(r"\bGH-\d|[!~$%&]\w", visible_words(text), re.IGNORECASE)


for _words in HOSTILE:
    test_hostile_words_stay_words = example(_words)(test_hostile_words_stay_words)


@pytest.mark.parametrize("words", HOSTILE)
def test_faults_of_files_are_a_list(words):
    refused = plan().model_copy(update={"environments": (), "faults": (words, "plain")})
    plain = plan().model_copy(update={"environments": (), "faults": ("n", "plain")})
    text = comment(refused)
    assert [kind for kind in shape(text) if kind != "  text_special"] == shape(comment(plain))
    assert html(text) == ""


def test_comment_says_change_cost_and_what_is_not_touched():
    text = comment(plan(endpoint("search")))
    assert text.startswith(COMMENT_MARKER)
    assert "dev: 1 changed endpoint, +0.00 USD to +100.00 USD a month" in text
    assert "| search | changed | - | 100.00 / 400.00 → 100.00 / 500.00 |" in text
    assert "<details><summary>Resources: 1</summary>" in text
    assert "Not touched: 3 endpoints." in text
    assert "data only: no code of this change ran" in text


def test_change_of_code_is_named():
    code = plan(endpoint()).model_copy(update={"data_only": False})
    assert "**changes code**" in comment(code)


def test_long_plan_keeps_what_has_space_and_names_the_rest():
    text = comment(plan(*(endpoint(f"model-{number}", text="x" * 50) for number in range(800))))
    assert len(text) <= MOST_CHARACTERS
    assert text.count("<details>") == text.count("</details>")
    assert "cut at 65,000 characters, without " in text and "Resources" in text[-150:]
    assert "800 changed endpoints" in text[:200]
    assert html(text) == ""


def test_words_of_any_length_are_cut():
    huge = plan(endpoint("x" * 200_000)).model_copy(update={"faults": ("y" * 200_000,)})
    text = comment(huge)
    assert len(text) <= MOST_CHARACTERS
    assert "refused, 1 fault" in text


def test_plans_of_two_environments_are_one_comment():
    one, two = plan(endpoint("a")), plan(endpoint("b"))
    renamed = two.environments[0].model_copy(update={"environment": "prod"})
    text = comment(one.model_copy(update={"environments": (*one.environments, renamed)}))
    assert "Roundhouse · dev" in text
    assert "Roundhouse · prod" in text


HEAD = "a" * 40


def dirty() -> Plan:
    whole = plan()
    return whole.model_copy(update={"head": whole.head.model_copy(update={"dirty": True})})


@pytest.mark.parametrize(
    ("planned", "head", "message"),
    [
        (plan(), "b" * 40, "the pull request's head is 'bbb"),
        (dirty(), HEAD, "with files that are not committed"),
    ],
)
def test_refuses_a_plan_of_another_head(planned, head, message):
    require_head(plan(), HEAD)
    with pytest.raises(RoundhouseError, match=message):
        require_head(planned, head)
