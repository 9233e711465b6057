"""From a client's recipe to plans: checked, defaults filled in, keyed by content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..models.catalogue import Catalogue
from ..models.stage import PORTABLE, Kind, Stage
from ..protocol.errors import InvalidRequest, OmniStageError
from ..protocol.recipe import Blob, InputRef, JobSpec, Recipe, content_hash

BlobKind = Callable[[str], str | None]
"""The kind of the upload with that digest; None if it is not here."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One stage execution and, through its inputs, everything it takes to redo it.

    Attributes:
        key: hash of model revision, stage, parameters and inputs: equal work has equal keys.
        engine: which engine runs it.
        parents: inputs that are outputs of other plans, by input name.
        blobs: inputs that were uploaded (their digests), by input name.
    """

    key: str
    model: str
    family: str
    stage: Stage
    engine: str
    params: Mapping[str, Any]
    parents: Mapping[str, tuple[Plan, str]]
    blobs: Mapping[str, str]

    def needs(self) -> Iterator[Plan]:
        """The plans whose outputs this one takes, each once."""
        return iter({plan.key: plan for plan, _ in self.parents.values()}.values())


def plan_recipe(recipe: Recipe, catalogue: Catalogue, blob_kind: BlobKind) -> dict[str, Plan]:
    """Plans by the client's job id, in the recipe's order.

    An upload that is not here is left unchecked: whether it is needed is for the caller to say.

    Raises:
        InvalidRequest: names the job, the field, its value and what is allowed.
    """
    plans: dict[str, Plan] = {}
    for spec in recipe:
        try:
            plans[spec.id] = _plan(spec, plans, catalogue, blob_kind)
        except OmniStageError as error:
            error.job, error.stage = spec.id, error.stage or spec.stage
            raise
    return plans


def _plan(
    spec: JobSpec, earlier: Mapping[str, Plan], catalogue: Catalogue, blob_kind: BlobKind
) -> Plan:
    entry = catalogue[spec.model]
    stage = entry.graph[spec.stage]
    params = entry.pinned(stage, stage.check_params(spec.params))
    family = entry.checkpoint.family.name
    parents: dict[str, tuple[Plan, str]] = {}
    blobs: dict[str, str] = {}
    kinds: dict[str, Kind] = {}
    content: dict[str, Any] = {}
    for name, ref in spec.inputs.items():
        kind = _kind(name, ref, earlier, blob_kind)
        # An upload that is not here yet passes for whatever the stage wants.
        kinds[name] = cast(Kind, kind or stage.inputs.get(name))
        if isinstance(ref, Blob):
            blobs[name] = ref.digest
            content[name] = {"blob": ref.digest}
        else:
            parent = earlier[ref.job]
            _check_family(name, kinds[name], parent, family)
            parents[name] = (parent, ref.output)
            content[name] = [parent.key, ref.output]
    stage.check_inputs(kinds)
    kind = entry.engine_kind(stage, params)
    key = content_hash([entry.revision, spec.stage, kind, params, content])
    engine = entry.engine_name(stage, params)
    return Plan(key, spec.model, family, stage, engine, params, parents, blobs)


def _kind(name: str, ref: InputRef, earlier: Mapping[str, Plan], blob_kind: BlobKind) -> str | None:
    if isinstance(ref, Blob):
        return blob_kind(ref.digest)
    stage = earlier[ref.job].stage
    if ref.output not in stage.outputs:
        raise InvalidRequest(
            f"Input {name!r} takes output {ref.output!r} of stage {stage.name}, which has none "
            "of that name.",
            field=name,
            value=ref.output,
            allowed=", ".join(stage.outputs),
        )
    return stage.outputs[ref.output]


def _check_family(name: str, kind: Kind, parent: Plan, family: str) -> None:
    """What a model keeps inside is of no use to models of another family."""
    if kind not in PORTABLE and parent.family != family:
        raise InvalidRequest(
            f"Input {name!r} ({kind}) comes from model {parent.model!r} of family "
            f"{parent.family}; this stage's model is of family {family}.",
            field=name,
            value=parent.model,
            allowed=f"a {kind} made by a model of family {family}",
        )
