"""`roundhouse recommend`: a SageMaker Inference Recommender job on a packaged engine."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Env, Form, Format, Input, Root, RowsPerRequest

EXAMPLE = "roundhouse recommend sentence-embedder --env dev --instance-type ml.g5.xlarge"
NO_LOCAL_JOBS = (
    "recommend --env local: the local cloud has no Inference Recommender; name an environment on "
    "AWS, or measure here with `roundhouse bench` or `roundhouse compare`."
)


def recommend(
    model: Annotated[str, typer.Argument(help="A model of the environment.")],
    env: Env,
    instance_type: Annotated[
        str | None,
        typer.Option(help="Instance types, with commas; default: all that run the engine."),
    ] = None,
    input: Input = None,
    rows: RowsPerRequest = 1,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Run SageMaker Inference Recommender and print its table.

    AWS serves the model's engine on instance types and loads each, 45 minutes at most, which costs
    as much as those instances do. Ctrl-C stops the job.
    """
    from roundhouse.errors import UsageError
    from roundhouse.measure.recommendation import COLUMNS, job_request, rows_of, run_job
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import LOCAL, open_session
    from roundhouse.table import table

    if env == LOCAL:
        raise UsageError(NO_LOCAL_JOBS)
    session = open_session(current_paths(root), open_report(form), env)
    words = [word.strip() for word in (instance_type or "").split(",") if word.strip()]
    recommendations = run_job(session, job_request(session, model, words, input, rows))
    if form is Format.json:
        print_json(recommendations)
    else:
        session.report.print_table(table(COLUMNS, rows_of(recommendations), right=COLUMNS[1:]))
