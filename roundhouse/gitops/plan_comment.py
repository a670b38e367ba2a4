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
CUT = "\n… cut at 65,000 characters: `plan.json`, which the job keeps, has the whole plan."
HEADLINE_CHARACTERS = 300
EMPTY = "(empty)"


Block = tuple[str, tuple[str, ...], str]
"""One section: what begins it, one line a row, and what ends it."""


def comment(plan: Plan) -> str:
    """Return a plan as one Markdown comment of at most 65,000 characters, the summary first."""
    parts = ["\n".join(_summary(plan))]
    available = MOST_CHARACTERS - len(COMMENT_MARKER) - len(parts[0]) - len(CUT) - 2
    is_whole = True
    for begin, rows, end in _blocks(plan):
        text = "\n".join((begin, *rows, *((end,) if end else ())))
        if len(text) >= available:
            is_whole, text = False, _first_rows(begin, rows, end, available - 1)
        if text:
            parts.append(text)
            available -= len(text) + 1
    return cut_body("\n".join([COMMENT_MARKER, *parts, *([] if is_whole else [CUT])]))


def _first_rows(begin: str, rows: tuple[str, ...], end: str, available: int) -> str:
    """Return a section with the rows for which there is space; empty: for not one."""
    note = f"\n{len(rows):,} rows; the first ones are shown."
    available -= len(begin) + len(end) + len(note) + 2
    kept = []
    for row in rows:
        available -= len(row) + 1
        if available < 0:
            break
        kept.append(row)
    return "\n".join((begin, *kept, note, *((end,) if end else ()))) if kept else ""


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


def _blocks(plan: Plan) -> Iterator[Block]:
    if plan.faults:
        yield "", tuple(f"- {markdown(fault) or EMPTY}" for fault in plan.faults), ""
    for environment in plan.environments:
        title = f"plan {markdown(environment.id)} of {markdown(environment.environment)}"
        yield f"\n{title}\n", tuple(f"- {markdown(note)}" for note in notes(environment)), ""
        yield from map(_section_block, sections(environment))


def _section_block(section: Table) -> Block:
    columns = f"| {' | '.join(section.columns)} |\n|{'---|' * len(section.columns)}"
    rows = tuple(f"| {' | '.join(map(markdown, row))} |" for row in section.rows)
    if not section.folded:
        return f"\n**{section.title}**\n\n{columns}", rows, ""
    summary = f"<details><summary>{section.title}: {len(section.rows)}</summary>"
    return f"\n{summary}\n\n{columns}", rows, "\n</details>"
