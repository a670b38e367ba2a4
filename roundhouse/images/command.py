"""`roundhouse images`: the container images of an environment, built where they are missing, and
shown.
"""

from __future__ import annotations

from roundhouse.cli_options import Env, Form, Format, Root

EPILOG = "Example: roundhouse images --env dev"


def images(env: Env, root: Root = None, form: Form = Format.text) -> None:
    """Build the container images that an environment lacks. In CodeBuild: no Docker here."""
    from roundhouse import commands
    from roundhouse.images.images import NOT_HERE, build_images, image_states
    from roundhouse.images.table import images_table
    from roundhouse.road import open_road

    report = commands.reporting(form.value)
    road = open_road(commands.here(root), report, env)
    states = image_states(road)
    missing = () if road.is_local else tuple(state.order for state in states if not state.is_there)
    build_images(road, missing)
    built = frozenset(order.image for order in missing)
    if form is Format.json:
        commands.print_json(
            [
                state.as_dict(built=state.order.image in built, is_local=road.is_local)
                for state in states
            ]
        )
    else:
        report.console.print(images_table(states, built, is_local=road.is_local))
    if road.is_local:
        report.say(NOT_HERE)
