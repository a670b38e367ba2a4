"""CloudFormation resources as plain data."""

from __future__ import annotations

from typing import Any

Properties = dict[str, Any]
"""As CloudFormation spells them."""
Resource = dict[str, Any]
"""`Type`, `Properties`, and where needed `DependsOn` or `Metadata`."""
Resources = dict[str, Resource]
"""By logical id."""
Template = dict[str, Any]
"""`Resources` and `Outputs`."""
