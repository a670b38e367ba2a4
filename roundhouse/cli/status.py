"""`roundhouse status`: the local cloud, and each engine, lock and endpoint of an environment."""

from __future__ import annotations

from roundhouse.cli.options import Env, Form, Format, Root

EXAMPLE = "roundhouse status --env dev --format json"


def status(env: Env = "local", root: Root = None, form: Form = Format.text) -> None:
    """Show engines, locks, what runs, and drift.

    What runs: endpoint configs, engines, images, instances, alarms, and how they differ from the
    files.
    """
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.status.state import state_of
    from roundhouse.status.table import (
        drift_lines,
        endpoint_lines,
        endpoints_table,
        live_table,
        state_table,
        unknown_lines,
    )

    report = open_report(form)
    state = state_of(current_paths(root), report, env)
    if form is Format.json:
        print_json(state.as_dict())
        return
    report.print(f"Local cloud: {state.cloud or 'not up (`roundhouse up` starts it)'}")
    report.print_table(state_table(state))
    for line in unknown_lines(state):
        report.print(line)
    if state.live:
        report.print_table(live_table(state.live))
    for line in drift_lines(state):
        report.print(line)
    report.print_table(endpoints_table(state.endpoints))
    for line in endpoint_lines(state.endpoints):
        report.print(line)
