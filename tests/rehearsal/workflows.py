"""Workflow files as the runner needs them: what starts them, and what each job may do."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import yaml

from tests.rehearsal.forge.forge import MAIN
from tests.rehearsal.forge.records import WORKFLOWS, Job

TYPES = {"pull_request": ("opened", "synchronize", "reopened"), "pull_request_target": ("opened",)}
BASE_EVENTS = frozenset({"pull_request_target", "workflow_run"})
"""Events whose workflows are always the default branch's."""
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


class Workflow:
    """One workflow file at a commit."""

    def __init__(self, git, commit, path):
        self.path, self.git, self.commit = path, git, commit
        self.content = yaml.load(git.text(commit, path), yaml.BaseLoader)
        self.name = self.content.get("name", path)

    def called_workflow(self, name):
        """The workflow that a job calls; None for a job with steps."""
        uses = self.content["jobs"][name].get("uses")
        if uses is None:
            return None
        return Workflow(self.git, self.commit, uses.removeprefix("./"))

    def job(self, log_name, job_id, ref):
        """The job that a line of act's log is of: `workflow/job` or `caller/workflow/job`."""
        caller, *rest = log_name.split("/", 2)
        workflow, names = self, rest
        if len(rest) == 2:
            workflow = self.called_workflow(re.sub(r"-\d+$", "", caller))
            names = rest[1:]
        spec = workflow.content["jobs"][job_id]
        environment = spec.get("environment")
        if environment is not None:
            environment = filled_template(environment, spec.get("name", job_id), names[0])
        permissions = spec.get("permissions", workflow.content.get("permissions", {}))
        return Job(
            name=names[0],
            permissions=permissions,
            workflow=workflow.path,
            workflow_ref=ref,
            environment=environment,
        )


def filled_template(template, name_template, name):
    """A text with the values that the same expressions have in a job's displayed name."""
    expressions = EXPRESSION.findall(name_template)
    pattern = "(.+)".join(re.escape(part) for part in EXPRESSION.split(name_template))
    values = re.fullmatch(pattern, re.sub(r"-\d+$", "", name) if not expressions else name)
    assert values is not None, f"job {name!r} is not {name_template!r}"
    for expression, value in zip(expressions, values.groups(), strict=True):
        template = template.replace(expression, value)
    assert not EXPRESSION.search(template), f"{template}: its value is not in the job's name"
    return template


def triggered_workflows(event):
    """The workflows that an event starts, with their files at the commit that GitHub takes."""
    git = event.repository.git
    commit = git.commit(MAIN) if event.name in BASE_EVENTS else event.sha
    for path in git.files(commit, WORKFLOWS) if git.commit(commit) else ():
        filters = event.repository.triggers(commit, path).get(event.name)
        if filters is not None and is_triggered(event, path, filters):
            yield Workflow(git, commit, path)


def is_triggered(event, path, filters):
    payload = event.payload
    if event.name == "workflow_dispatch":
        return payload["workflow"] == path
    if event.name == "workflow_run":
        return payload["workflow_run"]["name"] in filters["workflows"]
    if payload.get("action") not in (None, *filters.get("types", TYPES.get(event.name, ()))):
        return False
    pull = payload.get("pull_request")
    branch = event.ref.removeprefix("refs/heads/") if pull is None else pull["base"]["ref"]
    return any(fnmatchcase(branch, pattern) for pattern in filters.get("branches", ("*",)))
