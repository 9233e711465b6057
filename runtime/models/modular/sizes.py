"""The size of a result that nobody asked for: that of what it starts from or is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AUTO_PX = 0
"""As a width or height: leave it to the model."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What widths and heights a model can have.

    Attributes:
        multiple: both are multiples of this.
        maximum: in pixels.
        area: of a result with another picture's shape, in pixels; None: that picture's own area.
        plain: a side without a picture to follow.
    """

    multiple: int
    maximum: int
    area: int | None = None
    plain: int = 1024

    @classmethod
    def of(cls, width: Mapping[str, Any], area: int | None) -> Sides:
        """From the JSON schema of the width."""
        return cls(width.get("multipleOf", 1), width["maximum"], area)

    def fill(self, width: int, height: int, like: tuple[int, int] | None) -> tuple[int, int]:
        """The size in pixels.

        Args:
            width: as it was asked for, or `AUTO_PX`.
            height: the same.
            like: width and height of the picture to follow: its size, as near as there is one, or
                its shape where one side or the area is given.
        """
        if width and height:
            return width, height
        if like is None:
            return width or self._near(self.plain), height or self._near(self.plain)
        across, down = like
        if width or height:
            scale = width / across if width else height / down
        else:
            scale = (self.area / (across * down)) ** 0.5 if self.area else 1.0
            scale = min(scale, self.maximum / max(across, down))
        return width or self._near(across * scale), height or self._near(down * scale)

    def _near(self, side: float) -> int:
        most = self.maximum // self.multiple
        return min(max(1, int(side / self.multiple + 0.5)), most) * self.multiple
