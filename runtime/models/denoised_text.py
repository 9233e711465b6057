"""An answer that is denoised block by block: what of it stands, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .program import StageContext


class DenoisedText:
    """The text of the blocks that are finished, which is told as they are.

    Args:
        context: the request's.
        texts: the tokenizer or processor.
        end: the token that ends an answer, if there is one.
        most: tokens of the answer, at most; the rest of the last block is left out.
        prompt_tokens: how many there are before it.
    """

    def __init__(
        self, context: StageContext, texts: Any, end: int | None, most: int, prompt_tokens: int
    ) -> None:
        self._context = context
        self._texts = texts
        self._end = end
        self._most = most
        self._prompt_tokens = prompt_tokens
        self._ids: list[int] = []
        self._told = ""

    def committed(self, ids: Sequence[int]) -> None:
        """The next block is finished."""
        self._ids += ids
        # what is left off may still become part of another character or word
        text = self._decoded(self._own(self._ids)).rstrip("\ufffd").rstrip()
        if len(text) > len(self._told) and text.startswith(self._told):
            self._context.write(text[len(self._told) :])
            self._told = text

    def committed_before(self, ids: Sequence[int], block: int) -> None:
        """All of a sequence is finished but for its last block, of so many tokens."""
        known = self._prompt_tokens + len(self._ids)
        self.committed(ids[known : len(ids) - block])

    def finish(self, ids: Sequence[int]) -> dict[str, Any]:
        """What is to be said of all tokens that were written."""
        own = self._own(ids)
        ended = bool(own) and own[-1] == self._end
        return {
            "kind": "text",
            "text": self._decoded(own),
            "finish_reason": "stop" if ended else "length",
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": len(own),
            "cached_tokens": 0,
        }

    def _own(self, ids: Sequence[int]) -> list[int]:
        """The tokens of the answer: what is behind its end is not."""
        own = list(ids[: self._most])
        end = own.index(self._end) if self._end is not None and self._end in own else len(own)
        return own[: end + 1]

    def _decoded(self, ids: list[int]) -> str:
        return str(self._texts.batch_decode([ids], skip_special_tokens=True)[0])


class BlockProgress:
    """Counts steps of blocks; a block that is done early leaves some of them out."""

    def __init__(self, context: StageContext) -> None:
        self._context = context
        self._before = 0
        self._done = 0

    def after_step(self, pipeline: Any, step: int) -> None:
        """A step of the present block is done; the first one of a block is step 0."""
        each = pipeline.scheduler.num_inference_steps
        if step == 0 and self._done == 0:
            self._context.begin_steps(pipeline.num_timesteps)
        elif step == 0:
            self._before += each
        reached = self._before + min(step + 1, each)
        for _ in range(reached - self._done):
            self._context.end_step()
        self._done = max(self._done, reached)
