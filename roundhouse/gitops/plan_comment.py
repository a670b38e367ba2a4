"""A plan as one Markdown comment: the summary first, details folded, within the forge's limit."""

from __future__ import annotations

from collections.abc import Iterator

from roundhouse.errors import RoundhouseError
from roundhouse.gitops.markdown import MOST_CHARACTERS, cut_body, markdown
from roundhouse.gitops.plan_document import Plan
from roundhouse.gitops.plan_text import headline, notes, sections
from roundhouse.table import Table
from roundhouse.text import quantity

COMMENT_MARKER = "<!-- roundhouse:plan -->"
CUT = "… cut at 65,000 characters, without {}: `plan.json`, which the job keeps, has all."
LAST_LINE = 300
"""Characters that are kept for it."""
HEADLINE_CHARACTERS = 300
EMPTY = "(empty)"


def comment(plan: Plan) -> str:
    """Return a plan as one Markdown comment of at most 65,000 characters, the summary first.

    A section for which there is no space is left out, and named.
    """
    parts, left_out = [COMMENT_MARKER, "\n".join(_summary(plan))], []
    available = MOST_CHARACTERS - LAST_LINE - sum(map(len, parts))
    for title, text in _blocks(plan):
        if len(text) < available:
            parts.append(text)
            available -= len(text) + 1
        else:
            left_out.append(title)
    names = ", ".join(dict.fromkeys(left_out))
    return cut_body("\n".join([*parts, *([f"\n{CUT.format(names)}"] if left_out else [])]))


def require_head(plan: Plan, head: str) -> None:
    """Raise RoundhouseError for a plan that is not of this commit, as it is in git."""
    if plan.head.commit != head or plan.head.dirty:
        files = " with files that are not committed" if plan.head.dirty else ""
        commit = (plan.head.commit or plan.head.ref)[:40]
        raise RoundhouseError(
            f"The plan is of {commit!r}{files}, and the pull request's head is {head[:40]!r}; "
            "plan that commit."
        )


def _summary(plan: Plan) -> Iterator[str]:
    if plan.faults:
        yield f"### Roundhouse: refused, {quantity(len(plan.faults), 'fault')}"
    for item in plan.environments:
        yield f"### Roundhouse · {markdown(headline(item)[:HEADLINE_CHARACTERS])}"
    head = f"{(plan.head.commit or plan.head.ref)[:7]}{'-dirty' if plan.head.dirty else ''}"
    base = f"{plan.base.ref[:HEADLINE_CHARACTERS]} {(plan.base.commit or '')[:7]}".strip()
    scope = (
        "data only: no code of this change ran"
        if plan.data_only
        else "**changes code**: what main's code does with its files is shown, so review the code"
    )
    yield f"\n{markdown(head)} against {markdown(base)} · {scope}\n"


def _blocks(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield each section with its title."""
    if plan.faults:
        yield "faults", "\n".join(f"- {markdown(fault) or EMPTY}" for fault in plan.faults)
    for environment in plan.environments:
        title = f"plan {markdown(environment.id)} of {markdown(environment.environment)}"
        lines = (f"- {markdown(note)}" for note in notes(environment))
        yield "notes", "\n".join((f"\n{title}\n", *lines))
        yield from ((str(item.title), _section(item)) for item in sections(environment))


def _section(section: Table) -> str:
    columns = f"| {' | '.join(section.columns)} |\n|{'---|' * len(section.columns)}"
    rows = "\n".join(f"| {' | '.join(map(markdown, row))} |" for row in section.rows)
    if not section.folded:
        return f"\n**{section.title}**\n\n{columns}\n{rows}"
    summary = f"<details><summary>{section.title}: {len(section.rows)}</summary>"
    return f"\n{summary}\n\n{columns}\n{rows}\n\n</details>"
