"""A promotion whose file is written, as `roundhouse promote` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onboarding.promotion import Promotion, write_promotion
from roundhouse.gitops.copies import Copied
from roundhouse.gitops.promote import prepare_promotion
from roundhouse.paths import Paths
from roundhouse.report import Report


@dataclass(frozen=True, kw_only=True)
class Promoted:
    """What a promotion did; `path` None: the environment was there already."""

    promotion: Promotion
    path: Path | None
    copied: Copied


def promote(paths: Paths, report: Report, **options: Any) -> Promoted:
    """Promote with `prepare_promotion`'s options."""
    prepared = prepare_promotion(paths, report, **options)
    path = write_promotion(paths.tree, prepared.promotion) if prepared.is_new else None
    return Promoted(promotion=prepared.promotion, path=path, copied=prepared.copied)
