"""One stage of diffusers' blocks, made ready for many requests to borrow."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from diffusers.guiders.guider_utils import BaseGuidance
from diffusers.modular_pipelines.modular_pipeline import (
    ConditionalPipelineBlocks,
    LoopSequentialPipelineBlocks,
    SequentialPipelineBlocks,
)

from ..program import StageContext, step_progress

_MADE = "from_config"
"""Of a component that blocks make by themselves."""


class StageBlocks:
    """A block of diffusers with the plain parts of a model (tokenizers, processors).

    The pipelines here are prototypes that never run: each request takes a shallow copy of one
    and gives it stand-ins for the modules, and a scheduler and a guider of its own. Which
    branch of a conditional block runs follows from which inputs are there; each such choice is
    made once, because choosing anew costs every request.

    Args:
        parts: tokenizers, processors and the like, by component name.
        facts: modules without weights, for what a block reads of a module that it does not call.
        index: the checkpoint's `model_index.json`, which has the values of the block's configs.
        undeclared: components that it reads without saying so.

    Attributes:
        takes: names of the block's inputs.
        defaults: what these are unless they are given.
        gives: names of its outputs.
        wants: names of the components it uses.
        needs: those of them that a checkpoint has to bring, but for tokenizers and the like.
        guiders: those of them that guide, as the block itself would make them.
    """

    def __init__(
        self,
        block: Any,
        *,
        parts: Mapping[str, Any],
        facts: Mapping[str, Any],
        index: Mapping[str, Any],
        undeclared: frozenset[str] = frozenset(),
    ) -> None:
        self._block = copy.deepcopy(block)  # ours: the progress bars are replaced
        for loop in _loops(self._block):
            loop.progress_bar = step_progress
        self._parts = {**facts, **parts}
        self._configs = {
            spec.name: index[spec.name] for spec in block.expected_configs if spec.name in index
        }
        self._pipelines: dict[frozenset[str], Any] = {}
        self.takes = frozenset(given.name for given in block.inputs if given.name)
        self.defaults = {given.name: given.default for given in block.inputs}
        self.gives = frozenset(output.name for output in block.outputs)
        self.wants = undeclared.union(spec.name for spec in block.expected_components)
        brought = (s for s in block.expected_components if s.default_creation_method != _MADE)
        self.needs = frozenset(spec.name for spec in brought) - self._parts.keys()
        self.guiders = {s.name: s for s in block.expected_components if _guides(s.type_hint)}

    def run(
        self,
        context: StageContext,
        modules: Mapping[str, str],
        own: Mapping[str, Any],
        **given: Any,
    ) -> Mapping[str, Any]:
        """Run the block for one request.

        Args:
            context: the request's.
            modules: the request's modules, by the component they stand for.
            own: components of the request's own.
            given: inputs; what the block does not take is left out.

        Returns:
            The block's state: inputs, intermediates and outputs by name.
        """
        given = {n: v for n, v in given.items() if v is not None and n in self.takes}
        pipeline = copy.copy(self._pipeline(frozenset(given)))
        used = self.wants & modules.keys()  # asking for a module loads it
        stand_ins = {name: context.module(modules[name]) for name in used}
        pipeline.__dict__.update(stand_ins, **own)
        values: Mapping[str, Any] = pipeline(**given).values
        return values

    def _pipeline(self, present: frozenset[str]) -> Any:
        if present not in self._pipelines:
            pipeline = _resolved(self._block, present).init_pipeline()
            pipeline.update_components(**self._configs)
            pipeline.__dict__.update(self._parts)
            self._pipelines[present] = pipeline
        return self._pipelines[present]


def _guides(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, BaseGuidance)


def _resolved(block: Any, present: frozenset[str]) -> Any:
    """The block without what these inputs do not lead to."""
    if isinstance(block, (ConditionalPipelineBlocks, SequentialPipelineBlocks)):
        return block.get_execution_blocks(**dict.fromkeys(present, True)) or block
    return block


def _loops(block: Any) -> list[Any]:
    found = [block] if isinstance(block, LoopSequentialPipelineBlocks) else []
    for sub_block in getattr(block, "sub_blocks", {}).values():
        found += _loops(sub_block)
    return found
