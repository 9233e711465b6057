"""Rows of any length as one list of tokens, none padded: where each row's are.

A row has tokens of a text and tokens of pictures. Layers get those of all rows at once: of the
texts, of the pictures, or joint ones (each row's text, then its pictures). Only attention goes row
by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch.nn import functional

T = TypeVar("T")


class Row(Protocol):
    """A row of a call, whatever else belongs to it."""

    @property
    def text(self) -> torch.Tensor:
        """Tokens of its prompt `[tokens, features]`."""

    @property
    def image(self) -> torch.Tensor:
        """Tokens of its pictures `[tokens, channels]`."""


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring rows of equal lengths; they share an attention call."""

    rows: int
    text: int
    image: int

    @property
    def tokens(self) -> int:
        """Of all its rows."""
        return self.rows * (self.text + self.image)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Where each row's tokens are.

    Attributes:
        order: indices of the given rows, as they are packed.
        text, image: number of tokens of each packed row.
        runs: the packed rows in runs of equal lengths.
        text_row, image_row: `[tokens]`, the packed row each token belongs to.
    """

    order: list[int]
    text: list[int]
    image: list[int]
    runs: list[Run]
    text_row: torch.Tensor
    image_row: torch.Tensor

    @staticmethod
    def of(given: Sequence[Row], device: torch.device) -> PackedRows:
        """Pack rows, equal lengths side by side."""
        sizes = [(len(row.text), len(row.image)) for row in given]
        order = sorted(range(len(sizes)), key=sizes.__getitem__)
        runs = [Run(len(list(same)), *size) for size, same in groupby(sizes[i] for i in order)]
        text, image = ([sizes[i][part] for i in order] for part in (0, 1))
        return PackedRows(order, text, image, runs, _owners(text, device), _owners(image, device))

    def arrange(self, items: Sequence[T]) -> list[T]:
        """What belongs to each given row, as the rows are packed."""
        return [items[i] for i in self.order]

    def results(self, image: torch.Tensor, rows: Iterable[int]) -> list[tuple[torch.Tensor]]:
        """Tokens of pictures as the calls return them.

        Args:
            image: `[tokens, channels]`.
            rows: rows of each call, as they were given.

        Returns:
            For each call `([rows, tokens, channels],)`.
        """
        given = dict(zip(self.order, torch.split(image, self.image), strict=True))
        indices = iter(range(len(self.order)))
        return [(torch.stack([given[next(indices)] for _ in range(n)]),) for n in rows]

    def join(self, text: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        """Tokens `[tokens, ...]` of texts and of pictures as joint ones."""
        rows = zip(torch.split(text, self.text), torch.split(image, self.image), strict=True)
        return torch.cat(list(chain.from_iterable(rows)))

    def by_run(self, joint: torch.Tensor) -> list[torch.Tensor]:
        """Joint tokens `[tokens, ...]` as `[rows, tokens, ...]` of each run."""
        parts = zip(self.runs, torch.split(joint, [run.tokens for run in self.runs]), strict=True)
        return [x.reshape(run.rows, -1, *x.shape[1:]) for run, x in parts]

    def text_of(self, joint: Sequence[torch.Tensor]) -> torch.Tensor:
        """Tokens `[tokens, ...]` of the texts from the joint ones of each run."""
        parts = zip(self.runs, joint, strict=True)
        return torch.cat([x[:, : run.text].flatten(0, 1) for run, x in parts])

    def image_of(self, joint: Sequence[torch.Tensor]) -> torch.Tensor:
        """Tokens `[tokens, ...]` of the pictures from the joint ones of each run."""
        parts = zip(self.runs, joint, strict=True)
        return torch.cat([x[:, run.text :].flatten(0, 1) for run, x in parts])

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        """Attention of joint tokens `[tokens, heads, head_dim]`, each to those of its own row.

        Returns:
            `[rows, tokens, channels]` of each run.
        """
        return [
            functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in own))
            .transpose(1, 2)
            .flatten(2)
            for own in zip(*map(self.by_run, (q, k, v)), strict=True)
        ]


class PackedTransformer(ABC, Generic[R]):
    """A `PackedForward` of a transformer that takes tokens of texts and of pictures.

    A family says what the rows of a call are, and what the transformer makes of them all.
    """

    @abstractmethod
    def rows_of(self, call: Mapping[str, Any]) -> Iterator[R]:
        """The rows of a call."""

    @abstractmethod
    def forward(self, module: Any, own: Sequence[R], rows: PackedRows) -> torch.Tensor:
        """The transformer over packed rows; tokens of all pictures `[tokens, channels]`."""

    def run(self, module: Any, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
        """One forward; each call gets its `(noise_pred [rows, tokens, channels],)`."""
        own = self._rows(calls)
        rows = PackedRows.of(own, own[0].image.device)
        out = self.forward(module, rows.arrange(own), rows)
        return rows.results(out, [len(call["hidden_states"]) for call in calls])

    def layout(self, calls: Sequence[Mapping[str, Any]]) -> PackedRows:
        """Where the rows of calls are, on the CPU."""
        return PackedRows.of(self._rows(calls), torch.device("cpu"))

    def _rows(self, calls: Sequence[Mapping[str, Any]]) -> list[R]:
        return [row for call in calls for row in self.rows_of(call)]


def _owners(tokens: Sequence[int], device: torch.device) -> torch.Tensor:
    rows, counts = torch.arange(len(tokens), device=device), torch.tensor(tokens, device=device)
    return rows.repeat_interleave(counts, output_size=sum(tokens))


def given(arguments: Mapping[str, Any]) -> set[str]:
    """The arguments of a call that say anything."""
    return {
        name
        for name, value in arguments.items()
        if value is not None and not (isinstance(value, Mapping) and not value)
    }
