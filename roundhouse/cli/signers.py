"""`roundhouse signers`: the public key that an environment's engines are signed with."""

from __future__ import annotations

from roundhouse.cli.options import Env, Form, Format, Root

EXAMPLE = "roundhouse signers --env dev"


def signers(env: Env, root: Root = None, form: Form = Format.text) -> None:
    """Print an environment's public signing key.

    The line belongs into the file of every environment that takes this one's engines: its own, and
    those that are promoted from it.
    """
    from roundhouse.deploy.signing import key_text, signing_key
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    session = open_session(current_paths(root), open_report(form), env)
    key = signing_key(session)
    text = key_text(key)
    if form is Format.json:
        trusted = text in session.environment.trusted_signers
        print_json({"environment": env, "key": text, "keyid": key.keyid, "trusted": trusted})
    else:
        print(f"trusted_signers: [{text}]")
