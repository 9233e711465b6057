"""The error tree, as it travels on the wire and as a person reads it.

    OmniStageError
      InvalidRequest      a field is wrong: says which, its value, and what is allowed
        UnknownModel      the model is not on this runtime
        TooLarge          a body or tensor is over the limit
        ProtocolError     bytes that are not a message of this protocol
      Unauthorised        the token is missing or wrong
      NotFound            no such job, output, blob or lease
        MissingBlobs      uploaded data a recipe needs is gone: upload it again
      ResultGone          the job is done, but its result left the store: submit it again
      JobFailed           the job ran and failed
        DependencyFailed  a job it needs failed
        ModelLoadFailed   a model folder is missing files or holds corrupt ones
        StoreTooSmall     the result does not fit the result store
        EngineLost        the engine process died and retries are used up
      JobCancelled        stopped on request
      QueueFull           too many jobs wait already; nothing was started
      EngineStarting      the engine is not up yet
      RuntimeUnavailable  nothing answers at the address (client side)

Every error carries words for a person, and says whether trying again can help.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OmniStageError(Exception):
    """Base of every error OmniStage raises on purpose.

    Args:
        message: one or two sentences a ComfyUI user understands.
        field: the input that is wrong, as the caller named it.
        value: the value that was refused.
        allowed: what would be accepted, in words.
        job: key or id of the job concerned.
        stage: stage of the model concerned, such as `sample`.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    retry_helps: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: Any = None,
        allowed: str | None = None,
        job: str | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = value
        self.allowed = allowed
        self.job = job
        self.stage = stage

    def to_json(self) -> dict[str, Any]:
        """The error as a JSON object; `from_json` is its inverse."""
        body = {"code": self.code, "message": self.message, "retry_helps": self.retry_helps}
        for name in ("field", "value", "allowed", "job", "stage"):
            if getattr(self, name) is not None:
                body[name] = getattr(self, name)
        return body

    @staticmethod
    def from_json(body: dict[str, Any]) -> OmniStageError:
        """Rebuild the error of the right class; an unknown code becomes the base class."""
        error_type = _BY_CODE.get(str(body.get("code")), OmniStageError)
        error = error_type.__new__(error_type)
        OmniStageError.__init__(
            error,
            str(body.get("message", "unknown error")),
            **{k: body.get(k) for k in ("field", "value", "allowed", "job", "stage")},
        )
        return error


class InvalidRequest(OmniStageError):
    """A field of the request is wrong; nothing was started."""

    code = "invalid_request"
    http_status = 422


class UnknownModel(InvalidRequest):
    """The model is not on this runtime."""

    code = "unknown_model"
    http_status = 404


class TooLarge(InvalidRequest):
    """A body, frame or tensor is over a limit."""

    code = "too_large"
    http_status = 413


class ProtocolError(InvalidRequest):
    """The bytes are not a message of this protocol."""

    code = "protocol_error"
    http_status = 400


class Unauthorised(OmniStageError):
    """The token is missing or wrong."""

    code = "unauthorised"
    http_status = 401


class NotFound(OmniStageError):
    """No such job, output, blob or lease."""

    code = "not_found"
    http_status = 404


class MissingBlobs(NotFound):
    """A recipe refers to uploaded data the runtime does not hold; `value` lists the digests."""

    code = "missing_blobs"
    http_status = 409
    retry_helps = True


class ResultGone(OmniStageError):
    """The result left the store; submitting the same recipe computes it again."""

    code = "result_gone"
    http_status = 410
    retry_helps = True


class JobFailed(OmniStageError):
    """The job ran and failed."""

    code = "job_failed"


class DependencyFailed(JobFailed):
    """A job this one needs failed."""

    code = "dependency_failed"


class ModelLoadFailed(JobFailed):
    """The model folder is missing files, or holds corrupt ones."""

    code = "model_load_failed"


class StoreTooSmall(JobFailed):
    """A result does not fit the result store's byte budget."""

    code = "store_too_small"


class EngineLost(JobFailed):
    """The engine process died while it ran the job, and retries are used up."""

    code = "engine_lost"
    http_status = 503
    retry_helps = True


class JobCancelled(OmniStageError):
    """The job was stopped on request."""

    code = "job_cancelled"
    http_status = 409


class QueueFull(OmniStageError):
    """The runtime holds as many waiting jobs as it was configured to; nothing was started."""

    code = "queue_full"
    http_status = 429
    retry_helps = True


class EngineStarting(OmniStageError):
    """The runtime answers, but its engine is not up yet (or comes up again after a crash)."""

    code = "engine_starting"
    http_status = 503
    retry_helps = True


class RuntimeUnavailable(OmniStageError):
    """Nothing answers at the runtime's address."""

    code = "runtime_unavailable"
    http_status = 503
    retry_helps = True


def _tree(root: type[OmniStageError]) -> dict[str, type[OmniStageError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


_BY_CODE = _tree(OmniStageError)
