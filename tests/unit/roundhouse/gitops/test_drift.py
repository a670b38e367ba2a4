"""Differences as the text of one issue."""

from __future__ import annotations

from roundhouse.gitops.drift import Difference, drift_markdown
from roundhouse.gitops.markdown import MOST_CHARACTERS


def test_drift_is_one_text_within_the_forges_limit():
    assert drift_markdown("dev", ()) == "dev is as deployed."
    given = {"endpoint": "tiny", "deployed": 1.0, "live": "@acme <b>"}
    found = [Difference(what=f"weight {number} " + "x" * 100, **given) for number in range(900)]
    text = drift_markdown("dev", found[:1])
    assert text.startswith("1 thing of dev changed by hand, or no file names any more.")
    assert f"| tiny | weight 0 {'x' * 100} | " in text
    assert "@acme" not in text and "<b>" not in text.replace("\\<", "")
    long = drift_markdown("dev", found)
    assert len(long) <= MOST_CHARACTERS and "cut at 65,000 characters" in long
