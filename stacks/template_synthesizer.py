"""Writes a stack's template from plain data.

A resource that is hung into the CDK crosses to Node and is kept there: at hundreds of stacks that
is most of the time and of the
memory. The stack itself, its tags, dependencies, annotations and assets stay the CDK's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aws_cdk import (
    DefaultStackSynthesizer,
    FileAssetPackaging,
    FileAssetSource,
    ISynthesisSession,
    Stack,
)

from stacks.template_text import DEFAULT_QUALIFIER, json_text, with_bootstrap_rule


class TemplateSynthesizer(DefaultStackSynthesizer):
    """The CDK's own synthesizer, for a stack that hangs no resource; the stack tells it who it is
    once it exists.
    """

    stack: Stack

    def __init__(
        self, template: Callable[[], Mapping[str, Any]], qualifier: str = DEFAULT_QUALIFIER
    ) -> None:
        super().__init__(generate_bootstrap_version_rule=False, qualifier=qualifier)
        self._template, self._qualifier = template, qualifier

    def _synthesize_template(
        self,
        session: ISynthesisSession,
        lookup_role_arn: str | None = None,
        lookup_role_external_id: str | None = None,
        lookup_role_additional_options: Mapping[str, Any] | None = None,
    ) -> FileAssetSource:
        name = self.stack.template_file
        text = json_text(with_bootstrap_rule(self._template(), self._qualifier))
        (Path(session.outdir) / name).write_text(text, encoding="utf-8")
        return FileAssetSource(
            file_name=name,
            packaging=FileAssetPackaging.FILE,
            source_hash=hashlib.sha256(text.encode()).hexdigest(),
            deploy_time=True,
        )
