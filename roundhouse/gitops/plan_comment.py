"""A plan as one Markdown comment: the summary first, details folded, within the forge's limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roundhouse.errors import RoundhouseError
from roundhouse.gitops.markdown import MOST_CHARACTERS, cut_body, markdown
from roundhouse.gitops.plan_document import EnvironmentPlan, Plan
from roundhouse.gitops.plan_text import Section, headline, notes, sections
from roundhouse.text import quantity

COMMENT_MARKER = "<!-- roundhouse:plan -->"
CUT = "\n… cut at 65,000 characters: `plan.json`, which the job keeps, has the whole plan."
HEADLINE_CHARACTERS = 300
EMPTY = "(empty)"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Lines of one section: what begins it, one line a row, and what ends it."""

    begin: str
    rows: tuple[str, ...]
    end: str = ""

    def text(self, available: int) -> str | None:
        """Return the section with the rows for which there is space; None: for not one."""
        end = (self.end,) if self.end else ()
        whole = "\n".join((self.begin, *self.rows, *end))
        if len(whole) <= available:
            return whole
        note = f"\n{len(self.rows):,} rows; the first ones are shown."
        available -= len(self.begin) + len(self.end) + len(note) + 2
        kept = []
        for row in self.rows:
            available -= len(row) + 1
            if available < 0:
                break
            kept.append(row)
        return "\n".join((self.begin, *kept, note, *end)) if kept else None


def comment(plan: Plan) -> str:
    """Return a plan as one Markdown comment of at most 65,000 characters, the summary first."""
    parts = ["\n".join(_summary(plan))]
    available = MOST_CHARACTERS - len(COMMENT_MARKER) - len(parts[0]) - len(CUT) - 2
    is_whole = True
    for block in _blocks(plan):
        text = block.text(available - 1)
        if text is not None:
            parts.append(text)
            available -= len(text) + 1
        is_whole = is_whole and text is not None and "rows; the first ones" not in text
    return cut_body("\n".join([COMMENT_MARKER, *parts, *([] if is_whole else [CUT])]))


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
        yield Block(begin="", rows=tuple(f"- {markdown(fault) or EMPTY}" for fault in plan.faults))
    for environment in plan.environments:
        yield from _environment_blocks(environment)


def _environment_blocks(environment: EnvironmentPlan) -> Iterator[Block]:
    title = f"plan {markdown(environment.id)} of {markdown(environment.environment)}"
    lines = [f"- {markdown(note)}" for note in notes(environment)]
    yield Block(begin=f"\n{title}\n", rows=tuple(lines))
    for section in sections(environment):
        yield _section_block(section)


def _section_block(section: Section) -> Block:
    columns = f"| {' | '.join(section.columns)} |\n|{'---|' * len(section.columns)}"
    rows = tuple(f"| {' | '.join(map(markdown, row))} |" for row in section.rows)
    if not section.folded:
        return Block(begin=f"\n**{section.title}**\n\n{columns}", rows=rows)
    summary = f"<details><summary>{section.title}: {len(section.rows)}</summary>"
    return Block(begin=f"\n{summary}\n\n{columns}", rows=rows, end="\n</details>")
