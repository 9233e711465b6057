"""The table in the families' README."""

from __future__ import annotations

from omnistage.runtime.models.families import DIFFUSION, TEXT_DIFFUSION
from omnistage.runtime.models.families.table import table, written


def test_the_readme_is_up_to_date() -> None:
    assert written() == table(), "run `python -m omnistage.runtime.models.families`"


def test_every_family_has_its_line() -> None:
    lines = table().splitlines()[2:]
    families = [*DIFFUSION, *TEXT_DIFFUSION]
    assert [line.split(" ")[1] for line in lines] == [family.name for family in families]
