"""Jobs, the references between them, and handles that carry their own recipe.

A recipe is a list of jobs in which each job comes after those it refers to. A handle names
one output of one job of its recipe: whoever holds a handle can have that output computed
again, on a runtime that never saw it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidRequest, ProtocolError


@dataclass(frozen=True, slots=True)
class JobOutput:
    """A job's input that is an output of an earlier job."""

    job: str
    output: str

    def to_json(self) -> dict[str, str]:
        """Wire form."""
        return {"job": self.job, "output": self.output}


@dataclass(frozen=True, slots=True)
class Blob:
    """A job's input that was uploaded; `digest` is the SHA-256 of the encoded frame, in hex."""

    digest: str

    def to_json(self) -> dict[str, str]:
        """Wire form."""
        return {"blob": self.digest}


InputRef = JobOutput | Blob


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One stage execution as the client asks for it.

    `id` is a content hash, so two equal requests have equal ids and recipes merge freely.
    The runtime's own key is another hash, made after defaults are filled in.
    """

    id: str
    model: str
    stage: str
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, InputRef] = field(default_factory=dict)

    @classmethod
    def make(
        cls, model: str, stage: str, params: Mapping[str, Any], inputs: Mapping[str, InputRef]
    ) -> JobSpec:
        """Build a spec and give it the id that its content has."""
        content = [model, stage, dict(params), {k: v.to_json() for k, v in inputs.items()}]
        return cls(content_hash(content), model, stage, dict(params), dict(inputs))

    def to_json(self) -> dict[str, Any]:
        """Wire form."""
        return {
            "id": self.id,
            "model": self.model,
            "stage": self.stage,
            "params": dict(self.params),
            "inputs": {name: ref.to_json() for name, ref in self.inputs.items()},
        }

    @classmethod
    def from_json(cls, body: Any) -> JobSpec:
        """Read the wire form.

        Raises:
            InvalidRequest: a field is missing, unknown or of the wrong type.
        """
        fields = take_fields(
            body, "job", {"id": str, "model": str, "stage": str, "params": dict, "inputs": dict}
        )
        inputs = {name: _input_from_json(name, ref) for name, ref in fields.pop("inputs").items()}
        return cls(**fields, inputs=inputs)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Jobs in an order in which each comes after the jobs it refers to."""

    jobs: tuple[JobSpec, ...] = ()

    def __iter__(self) -> Iterator[JobSpec]:
        """The jobs, in order."""
        return iter(self.jobs)

    def merged(self, *others: Recipe) -> Recipe:
        """This recipe and others as one; equal jobs appear once."""
        jobs = {job.id: job for recipe in (self, *others) for job in recipe}
        return Recipe(tuple(jobs.values()))

    def then(self, job: JobSpec) -> Recipe:
        """This recipe with one more job at its end."""
        return self.merged(Recipe((job,)))

    def blobs(self) -> set[str]:
        """Digests of all uploads the recipe needs."""
        refs = (ref for job in self.jobs for ref in job.inputs.values())
        return {ref.digest for ref in refs if isinstance(ref, Blob)}

    def to_json(self) -> list[dict[str, Any]]:
        """Wire form."""
        return [job.to_json() for job in self.jobs]

    @classmethod
    def from_json(cls, body: Any) -> Recipe:
        """Read the wire form and check that it is a directed acyclic graph.

        Raises:
            InvalidRequest: not a list of jobs, a repeated id, or a reference to a job that
                does not come earlier in the list.
        """
        if not isinstance(body, list):
            raise InvalidRequest("`jobs` must be a list.", field="jobs", allowed="a list of jobs")
        recipe = cls(tuple(JobSpec.from_json(item) for item in body))
        seen: set[str] = set()
        for job in recipe.jobs:
            _check_references(job, seen)
            if job.id in seen:
                raise InvalidRequest(f"Two jobs have the id {job.id!r}.", field="id", value=job.id)
            seen.add(job.id)
        return recipe


@dataclass(frozen=True, slots=True)
class Handle:
    """One output of a job, together with all it takes to compute it."""

    recipe: Recipe
    job: str
    output: str
    blobs: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Encoded frames of the uploads the recipe needs, by digest."""

    @property
    def ref(self) -> JobOutput:
        """The reference to use as another job's input, next to this handle's recipe."""
        return JobOutput(self.job, self.output)


def handle_of(spec: JobSpec, output: str, parents: Iterable[Handle] = ()) -> Handle:
    """The handle of `spec`'s output, given the handles its inputs came from."""
    parents = list(parents)
    recipe = Recipe().merged(*(p.recipe for p in parents)).then(spec)
    return Handle(recipe, spec.id, output, {k: v for p in parents for k, v in p.blobs.items()})


def content_hash(content: Any) -> str:
    """A 128-bit hash, in hex, of a JSON value; key order does not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def blob_digest(data: bytes) -> str:
    """The digest under which uploaded bytes are known."""
    return hashlib.sha256(data).hexdigest()


def take_fields(
    body: Any, what: str, types: Mapping[str, type | tuple[type, ...]]
) -> dict[str, Any]:
    """Check that a JSON object has exactly the named fields, each of its type.

    Raises:
        InvalidRequest: names the field, its value and what is allowed.
    """
    if not isinstance(body, dict):
        raise ProtocolError(f"A {what} must be a JSON object.", field=what)
    for name in body:
        if name not in types:
            raise InvalidRequest(
                f"A {what} has no field {name!r}.", field=name, allowed=", ".join(sorted(types))
            )
    for name, kind in types.items():
        if not isinstance(body.get(name), kind) or isinstance(body.get(name), bool) is not (
            kind is bool
        ):
            wanted = kind.__name__ if isinstance(kind, type) else "/".join(k.__name__ for k in kind)
            raise InvalidRequest(
                f"Field {name!r} of a {what} must be of type {wanted}.",
                field=name,
                value=body.get(name),
                allowed=wanted,
            )
    return dict(body)


def _input_from_json(name: str, body: Any) -> InputRef:
    if isinstance(body, dict) and set(body) == {"blob"} and isinstance(body["blob"], str):
        return Blob(body["blob"])
    if isinstance(body, dict) and set(body) == {"job", "output"}:
        job, output = body["job"], body["output"]
        if isinstance(job, str) and isinstance(output, str):
            return JobOutput(job, output)
    raise InvalidRequest(
        f"Input {name!r} is neither a job's output nor an upload.",
        field=name,
        value=body,
        allowed='{"job": id, "output": name} or {"blob": digest}',
    )


def _check_references(job: JobSpec, seen: set[str]) -> None:
    for name, ref in job.inputs.items():
        if isinstance(ref, JobOutput) and ref.job not in seen:
            raise InvalidRequest(
                f"Input {name!r} of job {job.id!r} refers to job {ref.job!r}, "
                "which does not come earlier in the list.",
                field=name,
                value=ref.job,
                job=job.id,
            )
