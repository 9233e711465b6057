"""The runtime's one configuration: schema, sources, and where each value came from.

Later sources win: defaults, the TOML file, the environment (`OMNISTAGE_SERVER__PORT=8500`),
`--set server.port=8500`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from .client.address import is_loopback
from .engine.ar.settings import ARSettings
from .engine.diffusion.settings import EngineSettings
from .models.catalogue import Catalogue, ModelEntry
from .models.location import DEMO, SMOLLM2, VOICE
from .models.placement import device_of, dtype_of
from .models.smollm2 import smollm2_is_installed
from .protocol.errors import InvalidRequest

_PREFIX = "OMNISTAGE_"
_SEPARATOR = "__"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerConfig(_Section):
    """Where the runtime listens, and what it accepts."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8400, ge=0, le=65535, description="Port; 0 takes a free one.")
    token: SecretStr | None = Field(
        default=None, min_length=1, description="What clients must show; required off this machine."
    )
    max_body_mb: int = Field(default=512, ge=1, description="Largest upload.")
    max_queued_jobs: int = Field(default=1000, ge=1, description="Most jobs that may wait.")

    @model_validator(mode="after")
    def _closed_to_strangers(self) -> Self:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"listening on {self.host} lets other machines in: set server.token as well "
                "(or keep host = 127.0.0.1)"
            )
        return self


class StoreConfig(_Section):
    """The store of results and uploads."""

    budget_mb: int = Field(default=2048, ge=1, description="Bytes it holds at most, in MB.")


class LeaseConfig(_Section):
    """How long work lives without its owner."""

    ttl_s: float = Field(default=120.0, gt=0, description="Seconds without a sign of life.")


class EngineConfig(_Section):
    """Where the engine runs; its own settings are passed through untouched."""

    executor: Literal["process", "inline"] = Field(
        default="process", description="A process of its own, or a thread of the server."
    )
    retries: int = Field(
        default=2, ge=0, description="Times a job is tried again after an engine crash."
    )
    diffusion: EngineSettings = Field(default_factory=lambda: EngineSettings.model_validate({}))
    ar: ARSettings = Field(default_factory=lambda: ARSettings.model_validate({}))


class ModelConfig(_Section):
    """One model to serve."""

    source: str | None = Field(
        default=None,
        min_length=1,
        description="`demo`, `voice`, `smollm2`, a folder, a hub id, or a file of weights.",
    )
    files: dict[str, str] = Field(
        default_factory=dict, description="Files of weights by component, such as vae."
    )
    base: str | None = Field(
        default=None,
        min_length=1,
        description="A folder or hub id for what is in no file: configs and tokenizers.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Of weights and results. auto: bfloat16 on a GPU, else float32."
    )
    device: str = Field(
        default="auto",
        pattern=r"auto|(cpu|cuda|mps|xpu)(:\d+)?",
        description="Torch device. auto: the first GPU, or the CPU where there is none.",
    )
    engine: Literal["auto", "ar", "diffusion"] = Field(
        default="auto",
        description="Which engine runs a stage that both can: text encoders. auto: ar on a GPU.",
    )
    offload: Literal["none", "group"] = Field(
        default="none",
        description="group: weights stay in memory and come to the GPU layer by layer; slow, "
        "for a model with a component that is larger than the GPU.",
    )
    vllm: dict[str, Any] = Field(
        default_factory=dict, description="Options of vLLM's engine for this model."
    )
    lora_folders: list[str] = Field(
        default_factory=list, description="Folders with LoRAs, besides `loras` in the model's own."
    )
    lora_mb: int | None = Field(
        default=None,
        ge=1,
        description="What all LoRAs in memory may take. Unset: 2048 on a GPU, 512 on a CPU.",
    )

    controlnets: dict[str, str] = Field(
        default_factory=dict, description="ControlNets by name, each a folder, a hub id or a file."
    )
    trust_remote_code: bool = Field(
        default=False,
        description="Run Python code that comes with this model, where transformers lacks its "
        "class (LLaDA 2). It may do all that the runtime may.",
    )

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if self.source is None and not self.files:
            raise ValueError("a model needs a source, or files")
        return self


def _models_that_come_along() -> dict[str, ModelConfig]:
    small = {"kv_cache_memory_bytes": 32 << 20}  # as much as so small a model needs
    models = {
        DEMO: ModelConfig(source=DEMO, dtype="float32"),
        VOICE: ModelConfig(source=VOICE, dtype="float32", vllm=small),
    }
    if smollm2_is_installed():
        models[SMOLLM2] = ModelConfig(source=SMOLLM2)
    return models


class Config(_Section):
    """Everything that can be configured."""

    server: ServerConfig = Field(default_factory=ServerConfig)
    store: StoreConfig = Field(default_factory=StoreConfig)
    leases: LeaseConfig = Field(default_factory=LeaseConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    models: dict[str, ModelConfig] = Field(default_factory=_models_that_come_along)
    model_folders: list[str] = Field(
        default_factory=list, description="Folders in which files of weights are looked for."
    )
    comfyui: str | None = Field(
        default=None,
        min_length=1,
        description="ComfyUI's folder: its model folders, extra_model_paths.yaml and tokenizers.",
    )

    def catalogue(self) -> Catalogue:
        """The configured models."""
        return Catalogue({name: self.entry(name) for name in self.models})

    def entry(self, name: str) -> ModelEntry:
        """One configured model."""
        model = self.models[name]
        device = device_of(model.device)
        placed = {"device": device, "dtype": dtype_of(model.dtype, device)}
        found_in = {"model_folders": self.model_folders, "comfyui": self.comfyui}
        return ModelEntry(name, **{**model.model_dump(), **placed, **found_in})


class ConfigError(InvalidRequest):
    """The configuration is wrong; says which value, and where it was set."""

    code = "config_error"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that was set somewhere, by its dotted name."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and the origin of every value that is not a default."""

    config: Config
    origins: Mapping[str, str]

    def settings(self) -> Iterator[Setting]:
        """Every value with its origin, secrets masked."""
        for name, value in _leaves(self.config.model_dump(mode="json")):
            yield Setting(name, value, self.origins.get(name, "default"))


def load_config(
    file: Path | None = None,
    assignments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """Read all sources and check the whole.

    Args:
        file: TOML file.
        assignments: `a.b=c` texts, as given to `--set`.
        environ: replaces the process environment.

    Raises:
        ConfigError: names the value, where it was set, and what is wrong with it.
    """
    environ = os.environ if environ is None else environ
    found = [*_from_file(file), *_from_environment(environ), *_from_assignments(assignments)]
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in found:
        _put(tree, setting)
        origins[setting.name] = setting.origin
    try:
        return LoadedConfig(Config.model_validate(tree), origins)
    except ValidationError as error:
        raise _config_error(error, origins) from error


def _from_file(file: Path | None) -> Iterator[Setting]:
    if file is None:
        return
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file {file} cannot be read: {error}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"The configuration file {file} is not TOML: {error}") from error
    for name, value in _leaves(tree):
        yield Setting(name, value, str(file))


def _from_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    for variable, text in sorted(environ.items()):
        # Variables without `__` belong to the client: OMNISTAGE_ADDRESS and its like.
        if variable.startswith(_PREFIX) and _SEPARATOR in variable:
            name = variable.removeprefix(_PREFIX).lower().replace(_SEPARATOR, ".")
            yield Setting(name, _parsed(text), variable)


def _from_assignments(assignments: Iterable[str]) -> Iterator[Setting]:
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {text!r} is not of the form section.name=value.")
        yield Setting(name.strip(), _parsed(value.strip()), f"--set {name.strip()}")


def _parsed(text: str) -> Any:
    """A number, boolean or list as TOML writes it; anything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _put(tree: dict[str, Any], setting: Setting) -> None:
    *path, last = setting.name.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{setting.name} ({setting.origin}): {part} is a value, no section.")
    tree[last] = setting.value


def _config_error(error: ValidationError, origins: Mapping[str, str]) -> ConfigError:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    below = [origin for key, origin in origins.items() if f"{key}.".startswith(f"{name}.")]
    origin = f" (from {', '.join(dict.fromkeys(below))})" if below else ""
    words = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        words = "there is no such setting; `omnistage config show` lists them"
    return ConfigError(f"{name}{origin}: {words}.", field=name)
