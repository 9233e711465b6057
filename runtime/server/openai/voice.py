"""The jobs that say a thinker's answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...models.stage import Stage
from ...protocol.errors import InvalidRequest
from ...protocol.recipe import JobOutput, JobSpec

_USUAL: Final = "default"
_STAGES: Final = ("thinker", "talker", "codec_decode")


def spoken(answer: JobSpec, stages: Mapping[str, Stage], voice: str) -> tuple[JobSpec, JobSpec]:
    """Talker and codec for an answer.

    Args:
        answer: the thinker's job.
        stages: the model's.
        voice: a name from the model's list in any case, or `default`.

    Raises:
        InvalidRequest: the model does not speak, or lacks the voice.
    """
    missing = [name for name in _STAGES if name not in stages]
    if missing:
        raise InvalidRequest(
            f"Model {answer.model!r} does not speak: it has no stage {', '.join(missing)}.",
            field="model",
            value=answer.model,
        )
    params: dict[str, Any] = {"seed": answer.params.get("seed", 0)}
    if voice.lower() != _USUAL:
        params["voice"] = voice
    talker = JobSpec.make(
        answer.model,
        "talker",
        stages["talker"].check_params(params),
        {"hidden": JobOutput(answer.id, "hidden")},
    )
    codec = JobSpec.make(
        answer.model,
        "codec_decode",
        stages["codec_decode"].check_params({"seed": params["seed"]}),
        {"codes": JobOutput(talker.id, "codes")},
    )
    return talker, codec
