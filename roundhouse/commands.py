"""What each verb of the `roundhouse` command does; the command line itself is in cli.py."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from roundhouse import interruption
from roundhouse.errors import DeskError, RoundhouseError
from roundhouse.places import Places, places
from roundhouse.report import Report
from roundhouse.wording import counted

if TYPE_CHECKING:
    from roundhouse.load_test.wishes import Wishes

CHECK_FAILED = 1
PLAIN_WIDTH = 140
"""Columns of a table that no terminal limits."""


def here(root: Path | None = None) -> Places:
    """The places of the folder that the command was called in."""
    return places(_current_folder(), root)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise DeskError(
            "The current folder is gone; change into one that is there (`cd`), then try again."
        ) from error


def reporting(form: str = "text") -> Report:
    """Reports on standard output, or beside it when that is for a machine."""
    console = Console(stderr=form == "json", highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return Report(console=console, check=interruption.check)


def new(root: Path | None, *, name: str, task: str, package: str, path: str | None) -> None:
    """Writes a first model file."""
    from roundhouse.new_model import write_new_model

    at = here(root)
    file = write_new_model(at.tree, name=name, task=task, package=package, path=path)
    report = reporting()
    report.say(
        f"Wrote {_short(file, _current_folder())}. Next: read its comments, then `roundhouse check`."
    )


def check(root: Path | None, form: str) -> int:
    """Prints every fault, and what the locks say will cost; 1 when there is a fault."""
    from onboarding.planning.judging import judged
    from onboarding.tree import read_tree
    from roundhouse.tables import faults_table

    at = here(root).tree
    tree = read_tree(at)
    judgement, report = judged(tree), reporting(form)
    elsewhere = "" if root is not None or _current_folder().is_relative_to(at) else f" in {at}"
    faults = (*tree.faults, *judgement.faults)
    count = len(tree.models) + len(tree.endpoints) + len(tree.environments)
    if form == "json":
        print_json([fault.model_dump(mode="json") for fault in faults])
    elif faults:
        report.console.print(faults_table(faults))
        report.say(f"{counted(len(faults), 'fault')}{elsewhere}.")
    else:
        report.say(f"{counted(count, 'file')}{elsewhere}, no fault.")
    for note in judgement.notes:
        report.say(f"Note: {note}")
    return CHECK_FAILED if faults else 0


def build(root: Path | None, environment: str, models: tuple[str, ...], form: str) -> None:
    """Builds what is missing."""
    from roundhouse.builds import engines
    from roundhouse.builds.outcome import EnginesNotBuilt, outcome
    from roundhouse.road import open_road

    report = reporting(form)
    road = open_road(here(root), report, environment)
    orders = engines.wanted(road, models)
    try:
        entries = engines.build_all(road, orders)
    except EnginesNotBuilt as error:
        if form == "json":
            print_json(outcome(error.built, error.failures))
        raise
    if form == "json":
        print_json(outcome(entries, ()))
    elif not entries:
        report.say("Nothing to build: every engine is in its lock and in S3.")
    else:
        report.say(f"Locks written under {road.environment.locks}/: review and commit them.")


def deploy(root: Path | None, environment: str, endpoints: tuple[str, ...] = ()) -> None:
    """Walks the road of one environment, or of some of its endpoints."""
    from roundhouse.deployment.deploying import deploy as walk
    from roundhouse.road import open_road

    report = reporting()
    done = walk(open_road(here(root), report, environment, endpoints=endpoints), rebuild_gone=False)
    built = f"{counted(len(done.built), 'engine')} built, " if done.built else "nothing built, "
    pushed = f"{counted(len(done.images), 'image')} pushed, " if done.images else ""
    changed = counted(len(done.deployed.changed), "stack")
    report.say(
        f"Done: {pushed}{built}{changed} changed, {len(done.deployed.unchanged)} with no changes."
    )


def invoke(
    root: Path | None,
    environment: str,
    endpoint: str,
    model: str | None,
    texts: tuple[str, ...],
    form: str,
    *,
    input: Path | None = None,
    output: Path | None = None,
) -> None:
    """Asks an endpoint and prints a vector's head, how alike several are, the classes of each text,
    or the answer's arrays.
    """
    from roundhouse import asking, exchanged_arrays
    from roundhouse.road import open_road
    from roundhouse.tables import arrays_table, classes_table, likeness_table

    report = reporting(form)
    road = open_road(here(root), report, environment)
    to, target = asking.address(road.deployments(), endpoint, model)
    asking.require_inputs(target, texts, input)
    if input is not None:
        arrays = asking.ask_arrays(
            road.clients("sagemaker-runtime"), to, exchanged_arrays.read(input, target)
        )
        if output is not None:
            exchanged_arrays.write(output, arrays)
        if form == "json":
            print_json(exchanged_arrays.as_document(arrays))
        else:
            report.console.print(arrays_table(arrays))
        return
    found = asking.ask(road.clients("sagemaker-runtime"), to, texts)
    if output is not None:
        exchanged_arrays.write(output, {asking.output_name(target): found})
    if target.model.task == "text-classification":
        classes = asking.classes(target, found)
        if form == "json":
            print_json(
                [
                    {"text": text, "classes": dict(scores)}
                    for text, scores in zip(texts, classes, strict=True)
                ]
            )
        else:
            report.console.print(classes_table(texts, classes))
    elif form == "json":
        print_json(
            [{"text": text, "embedding": vector} for text, vector in zip(texts, found, strict=True)]
        )
    elif len(found) == 1:
        head = ", ".join(f"{number:+.4f}" for number in found[0][:8])
        report.say(f"[{head}, …]  {len(found[0])} numbers")
    else:
        report.console.print(likeness_table(texts, found))


def bench(root: Path | None, wishes: Wishes, form: str) -> int:
    """Loads an endpoint or a server and prints what came of it; 130 when it was broken off."""
    from roundhouse.load_test.command import load

    return load(here(root), reporting(form), wishes, form)


def card(root: Path | None, environment: str, model: str) -> None:
    """Fetches an engine's card."""
    from roundhouse.cards import fetch_card
    from roundhouse.road import open_road

    at, report, start = here(root), reporting(), _current_folder()
    page = fetch_card(open_road(at, report, environment), model, at.build / "cards")
    report.say(
        f"{_short(page, start)}: open it in a browser; its numbers are in {_short(page.with_suffix('.json'), start)}."
    )


def up(port: int | None) -> None:
    """Starts the local cloud."""
    from local_cloud import lifecycle
    from roundhouse.road import cloud_state

    at, report = here(), reporting()
    with report.step("Starting the local cloud") as step:
        address = lifecycle.start(at.code, cloud_state(at), port)
        step.done(
            f"{address.endpoint_url} (process {address.pid}, log {cloud_state(at) / lifecycle.LOG_FILE})"
        )
    if port is not None and address.port != port:
        raise DeskError(
            f"The local cloud runs on port {address.port} already; `roundhouse down` first, to have it on {port}."
        )
    report.say("To point the AWS tools at it:")
    for name, value in lifecycle.environment(address).items():
        report.say(f"  export {name}={value}")
    if address.seconds_per_minute != 60:
        report.say(
            f"A minute of waiting that AWS is asked for, such as a rollout's, takes {address.seconds_per_minute:g} s here: "
            "ROUNDHOUSE_CLOUD_SECONDS_PER_MINUTE sets it."
        )


def down() -> None:
    """Stops the local cloud; its locks name archives that go with it, so they go too."""
    report = reporting()
    report.say(
        "The local cloud is stopped and removed."
        if stop_cloud(here())
        else "The local cloud was not up."
    )


def stop_interrupted_demo() -> None:
    """Nothing of a demo that was broken off is left."""
    stop_cloud(here())
    reporting().say(
        "Stopped: the local cloud and everything in it is gone. `make demo` begins anew."
    )


def stop_cloud(at: Places) -> bool:
    """Stops the local cloud and removes the locks of what it held; False when there was none."""
    from local_cloud import lifecycle
    from roundhouse.road import LOCAL, cloud_state

    was_up = lifecycle.stop(cloud_state(at))
    for lock in (at.build / LOCAL / "locks").glob("*.lock.yaml"):
        lock.unlink(missing_ok=True)
    for folder in (at.build / LOCAL / "locks", at.build / LOCAL):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return was_up


def status(root: Path | None, environment: str, form: str) -> None:
    """Shows the local cloud, engines, locks and endpoints."""
    from roundhouse.status.state import state_of
    from roundhouse.status.table import endpoint_lines, endpoints_table
    from roundhouse.tables import state_table, unknown_lines

    report = reporting(form)
    state = state_of(here(root), report, environment)
    if form == "json":
        print_json(state.as_dict())
    else:
        report.say(f"Local cloud: {state.cloud or 'not up (`roundhouse up` starts it)'}")
        report.console.print(state_table(state))
        for line in unknown_lines(state):
            report.say(line)
        report.console.print(endpoints_table(state.endpoints))
        for line in endpoint_lines(state.endpoints):
            report.say(line)


def crash_log(error: Exception) -> str:
    """Writes the trace of an error that nobody foresaw, and says where."""
    text = "".join(traceback.format_exception(error))
    try:
        folder = here().build / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "crash.log").write_text(text, encoding="utf-8")
    except (OSError, RoundhouseError):
        return "could not be written"
    return str(folder / "crash.log")


def _short(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def print_json(value: Any) -> None:
    """Prints a document for machines."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
