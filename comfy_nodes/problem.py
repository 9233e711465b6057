"""What is wrong with an input of a prompt, and how ComfyUI says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one input of one node."""

    node: str
    input: str
    message: str
    value: Any = None


def refusal(found: Iterable[Problem], prompt: Mapping[str, Any]) -> dict[str, Any]:
    """The problems as the body with which ComfyUI itself refuses a prompt."""
    found = list(found)
    nodes: dict[str, Any] = {}
    for problem in found:
        entry = nodes.setdefault(
            problem.node,
            {
                "errors": [],
                "dependent_outputs": [],
                "class_type": prompt[problem.node]["class_type"],
            },
        )
        entry["errors"].append(
            {
                "type": "value_not_accepted",
                "message": problem.message,
                "details": problem.input,
                "extra_info": {"input_name": problem.input},
            }
        )
    details = "\n".join(f"{nodes[p.node]['class_type']} {p.node}: {p.message}" for p in found)
    error = {
        "type": "prompt_outputs_failed_validation",
        "message": "Prompt outputs failed validation",
        "details": details,
        "extra_info": {},
    }
    return {"error": error, "node_errors": nodes}
