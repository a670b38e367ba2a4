"""`roundhouse demo --gpu`: engines for the GPU of this machine, behind real servers, checked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from onboarding.deployment import Target
from roundhouse import settings
from roundhouse.aws.clients import aws_clients
from roundhouse.dev.demo.answers import (
    SERVERS,
    TEXTS,
    Answer,
    measured_answer,
    require_sound,
    search_table,
    summary_table,
)
from roundhouse.dev.demo.reference_vectors import Reference, reference_vectors
from roundhouse.dev.gpu.engines import LOCAL_GPU, Builds, BuiltEngine, unpack, write_tree
from roundhouse.dev.gpu.machine import (
    GpuMachine,
    find_machine,
    missing,
    python_variables,
    triton_line,
)
from roundhouse.dev.gpu.servers import serving
from roundhouse.errors import NotReadyError
from roundhouse.paths import Paths, current_paths
from roundhouse.processes import Processes, Run
from roundhouse.report import Report, open_report
from roundhouse.session import Session, valid_tree

FOLDER = "gpu"
"""Below build/: store, plans and archives, which the rows of tests/gpu share."""


def run_gpu_demo() -> None:
    """Build, serve by the Python server and by Triton, compare with PyTorch, print tables.

    Raises RoundhouseError as soon as something does not hold.
    """
    paths, report, processes = current_paths(), open_report(), Processes()
    begin = time.monotonic()
    variables = python_variables(paths, settings.inherited())
    machine = ready_machine(paths, variables, processes, report)
    assert machine.platform is not None and machine.instance_type is not None
    tree = write_tree(
        paths.tree,
        paths.build / FOLDER / "demo-tree",
        platform=machine.platform,
        instance_type=machine.instance_type,
        is_exact=machine.is_exact,
    )
    session = local_session(paths, tree, report, processes, variables)
    with reference_vectors(session, TEXTS, processes.stop) as reference_of:
        reference = reference_of()
    answers: list[Answer] = []
    build_seconds: dict[str, float] = {}
    for deployment in session.deployments():
        for target in deployment.targets:
            engine = _build(session, target, machine)
            if engine.status == "built":
                build_seconds[target.model.name] = sum(engine.seconds.values())
            for answer in _answers(session, target, engine, machine, reference):
                require_sound(answer)
                answers.append(answer)
    report.print_table(search_table(answers))
    caption = (
        f"{len(build_seconds)} engines built; every vector checked against PyTorch; "
        f"{time.monotonic() - begin:.0f} s in all."
    )
    report.print_table(summary_table(answers, build_seconds))
    report.print(caption)
    if machine.triton is None:
        report.print(triton_line(machine))
    report.print(f"Files, engines and plans lie in {paths.build / FOLDER}.")


def ready_machine(
    paths: Paths, variables: dict[str, str], processes: Processes, report: Report
) -> GpuMachine:
    """Return a machine that lacks nothing. Raises NotReadyError with a line for each lack."""
    with report.step("GPU") as step:
        machine = find_machine(str(paths.builder_python), paths.code, variables, processes)
        lacks = [f"  missing: {thing}\n           {line}" for thing, line in missing(machine)]
        if lacks:
            raise NotReadyError(
                "This machine is not ready for `roundhouse demo --gpu`:\n" + "\n".join(lacks)
            )
        host = machine.host
        assert host is not None
        step.finish(f"{host.gpu}, driver {host.driver}, TensorRT {machine.trtexec}")
    return machine


def local_session(
    paths: Paths, tree: Path, report: Report, run: Run, variables: Mapping[str, str]
) -> Session:
    """Return the session of a tree's environment `local-gpu`, whose account nobody reaches."""
    own = Paths(code=paths.code, tree=tree, build=paths.build)
    spec = valid_tree(own).environments[LOCAL_GPU]
    return Session(
        paths=own,
        environment=spec,
        variables=variables,
        clients=aws_clients(spec.region),
        run=run,
        report=report,
    )


def _build(session: Session, target: Target, machine: GpuMachine) -> BuiltEngine:
    folder = session.paths.build / FOLDER
    with session.report.step(f"Building {target.model.name}") as step:
        builds = Builds(
            tree=session.paths.tree,
            store=folder / "store",
            work=folder / "work",
            python=machine.python,
            code=session.paths.code,
            variables=session.variables,
            run=session.run,
        )
        engine = builds.build(target.model.name, step.update)
        manifest = engine.entry.manifest
        step.finish(f"{engine.status}, {manifest.precision} {manifest.engine_key}")
    return engine


def _answers(
    session: Session,
    target: Target,
    engine: BuiltEngine,
    machine: GpuMachine,
    reference: Reference,
) -> Iterator[Answer]:
    """Yield the answers of the Python server and, where it is installed, of Triton."""
    model, manifest = target.model.name, engine.entry.manifest
    archive = unpack(engine.archive, session.paths.build / FOLDER / "served" / model)
    servers = {"python": None} | ({} if machine.triton is None else {"triton": machine.triton})
    for name, program in servers.items():
        with (
            session.report.step(f"{SERVERS[name]} with {model}") as step,
            serving(
                archive,
                model,
                python=machine.python,
                variables=session.variables,
                tritonserver=program,
            ) as server,
        ):
            answer = measured_answer(
                server.vectors,
                target,
                manifest,
                reference[model],
                endpoint=LOCAL_GPU,
                server=name,
            )
            step.finish(f"ready in {server.ready_seconds:.1f} s, worst cosine {answer.worst:.5f}")
        yield answer
