"""The pack's texts in other languages.

ComfyUI reads `locales/` next to a pack's `__init__.py` only, and the layout of this repository
keeps that folder here; `middleware` adds what is read here to ComfyUI's answer.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "locales"


@cache
def translations() -> dict[str, dict[str, Any]]:
    """Texts by language and by file name, as ComfyUI would read them."""
    return {
        language.name: {
            file.stem: json.loads(file.read_text(encoding="utf-8"))
            for file in sorted(language.glob("*.json"))
        }
        for language in sorted(_FOLDER.iterdir())
    }


def with_ours(theirs: dict[str, Any]) -> dict[str, Any]:
    """All packs' texts with ours added; nobody else's text is replaced."""
    merged = dict(theirs)
    for language, files in translations().items():
        known = dict(merged.get(language, {}))
        for name, texts in files.items():
            known[name] = {**texts, **known.get(name, {})}
        merged[language] = known
    return merged
