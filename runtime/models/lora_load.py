"""Reading an adapter file for a model's modules, by diffusers' own loaders.

The modules themselves are never touched: diffusers loads the file into hollow copies of them, and
what PEFT made of it there is taken out, layer by layer.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from ..protocol.errors import InvalidRequest, ModelLoadFailed
from .lora import LoRAFile
from .lora_params import HIGH_NOISE, LOW_NOISE, Noise

log = logging.getLogger(__name__)

_NAME = "adapter"
_REFUSED = {"dora_scale": "DoRA", "lora_magnitude_vector": "DoRA", "lokr_": "LoKr", "hada_": "LoHa"}
"""Parts of keys that belong to other kinds of adapters, which are no sum of changes."""

_HOOKS = {"_diffusers_hook", "_hf_hook", "_old_forward", "forward"}

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, slots=True, eq=False)
class LayerChange:
    """What an adapter adds to one layer: `up(down(x))`, scaled.

    Attributes:
        alpha, divisor: their ratio is the scale of strength 1.
    """

    down: nn.Module
    up: nn.Module
    alpha: float
    divisor: float

    def scale(self, strength: float) -> float:
        """The factor for a strength, rounded as PEFT rounds it."""
        return strength * self.alpha / self.divisor


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """One adapter in memory.

    Attributes:
        changes: by module of the model and layer of the module.
        nbytes: of its weights.
        ignored: keys of the file that fit nothing in the model.
        mixes: whether rows with it and without it may share a forward, by what is called and how
            it is merged; known once it was tried.
    """

    name: str
    changes: Mapping[str, Mapping[str, LayerChange]]
    nbytes: int
    ignored: tuple[str, ...] = ()
    mixes: dict[Hashable, bool] = field(default_factory=dict)


class AdapterLoader:
    """Reads adapter files for one model.

    Args:
        pipeline: class name in the model's `model_index.json`; its loader knows the formats.
        modules: names of the model's modules.
        device: where the adapters' weights go.
    """

    def __init__(self, pipeline: str, modules: Collection[str], device: torch.device) -> None:
        self._pipeline = pipeline
        self._modules = frozenset(modules)
        self._device = device

    def load(
        self, file: LoRAFile, find: Callable[[str], nn.Module], noise: Noise = "all"
    ) -> Adapter:
        """Read a file.

        Args:
            file: what to read.
            find: gives a module by name; its weights need not be in memory. May suspend.
            noise: see `LoRA`.

        Raises:
            InvalidRequest: the model's pipeline takes no adapters, or no key fits the model.
            ModelLoadFailed: the file is corrupt, or has a wrong shape or an unknown kind.
        """
        from peft.utils.error import NoMatchingPeftModuleError

        mixin = _mixin(self._pipeline)
        keys = _checked_keys(file)
        names = _for_noise(_loadable(mixin), noise)
        modules = {name: find(name) for name in names if name in self._modules}
        try:
            # inference tensors could not be moved or assigned later
            with torch.inference_mode(False), torch.no_grad():
                shell = _shell(mixin, modules, self._device)
                for more in _calls(modules):
                    shell.load_lora_weights(
                        str(file.path), adapter_name=_NAME, use_safetensors=True, **more
                    )
        except (_NothingFits, NoMatchingPeftModuleError):
            raise self._no_match(file, keys, modules) from None
        except Exception as error:
            log.info("LoRA %s was refused", file.name, exc_info=True)
            raise _bad(file, _reason(error)) from error
        changes = {
            name: found
            for name, module in modules.items()
            if (found := dict(_changes(file, getattr(shell, name), module)))
        }
        if not changes:
            raise self._no_match(file, keys, modules)
        return _adapter(file, changes, shell.keys_found)

    def _no_match(
        self, file: LoRAFile, keys: list[str], modules: Mapping[str, nn.Module]
    ) -> InvalidRequest:
        return InvalidRequest(
            f"LoRA {file.name!r} does not belong to this model: none of its {len(keys)} keys "
            f"fits, such as {keys[0]!r}. Expected are keys such as {_example(modules)!r}.",
            field="loras",
            value=file.name,
            allowed=f"an adapter for {self._pipeline}",
        )


def _adapter(
    file: LoRAFile, changes: Mapping[str, Mapping[str, LayerChange]], keys: Sequence[str]
) -> Adapter:
    """The adapter, with a warning about keys that did not become part of it."""
    weights = [
        weight
        for found in changes.values()
        for change in found.values()
        for weight in (*change.down.parameters(), *change.up.parameters())
    ]
    used = {f"{module}.{name}" for module, found in changes.items() for name in found}
    ignored = tuple(key for key in keys if key.split(".lora")[0] not in used)
    if len(weights) >= len(keys):
        ignored = ()  # older spellings of keys, all of which were used
    elif ignored:
        words = "LoRA %s: %d of %d keys fit nothing in this model and are ignored, such as %s"
        log.warning(words, file.name, len(ignored), len(keys), ignored[0])
    nbytes = sum(weight.numel() * weight.element_size() for weight in weights)
    return Adapter(file.name, changes, nbytes, ignored)


def _loadable(loader: Any) -> list[str]:
    """Components that a pipeline's loader brings adapters to."""
    return list(loader._lora_loadable_modules)


def _for_noise(components: Sequence[str], noise: Noise) -> list[str]:
    """The components that an adapter for such noise changes."""
    if noise == "all":
        return list(components)
    return [name for name in components if (name == LOW_NOISE) == (noise == "low")]


def _calls(modules: Collection[str]) -> Iterator[dict[str, bool]]:
    """What a pipeline's loader is told, call by call: it fills one transformer at a time."""
    if set(modules) - {LOW_NOISE}:
        yield {}
    if LOW_NOISE in modules:
        yield {"load_into_transformer_2": True}


class _NothingFits(Exception):
    """No key of the file is for a module the model has."""


def _mixin(pipeline: str) -> Any:
    """The part of a pipeline's class that loads adapters.

    Raises:
        InvalidRequest: the pipeline takes none.
    """
    import diffusers
    from diffusers.loaders.lora_base import LoraBaseMixin

    for base in getattr(diffusers, pipeline, object).__mro__:
        own = issubclass(base, LoraBaseMixin) and base is not LoraBaseMixin
        if own and not issubclass(base, diffusers.DiffusionPipeline):
            return base
    raise InvalidRequest(
        f"Models of class {pipeline} take no LoRAs.", field="loras", allowed="an empty list"
    )


def _checked_keys(file: LoRAFile) -> list[str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file.path, framework="pt") as opened:
            keys = list(opened.keys())
    except (OSError, SafetensorError) as error:
        raise _bad(file, f"it is no whole safetensors file ({error})") from error
    if not keys:
        raise _bad(file, "it is empty")
    for part, kind in _REFUSED.items():
        if any(part in key for key in keys):
            raise _bad(file, f"it is a {kind} adapter; only LoRA is supported")
    return keys


def _shell(mixin: Any, modules: Mapping[str, nn.Module], device: torch.device) -> Any:
    """diffusers' loader over hollow copies of the modules."""

    class Shell(mixin):
        """Stands in for a pipeline."""

        hf_device_map: ClassVar[dict[str, Any]] = {}  # nothing here is offloaded
        keys_found: ClassVar[list[str]] = []

        @classmethod
        def lora_state_dict(cls, *args: Any, **kwargs: Any) -> Any:
            """The converted file, without what no module of the model could take."""
            found = super().lora_state_dict(*args, **kwargs)
            weights, *others = found if isinstance(found, tuple) else (found,)
            cls.keys_found = list(weights)
            weights = _with_component(weights, named[0], modules[here[0]]) if here else weights
            own = {k: v for k, v in weights.items() if k.split(".")[0] in named}
            if not own:
                raise _NothingFits
            return (own, *others) if isinstance(found, tuple) else own

    here = list(modules)
    named = [HIGH_NOISE if name == LOW_NOISE else name for name in here]
    shell = Shell()
    for name in _loadable(mixin):
        setattr(shell, name, hollow(modules[name], device) if name in modules else None)
    if LOW_NOISE in modules and HIGH_NOISE not in modules:
        shell.transformer = shell.transformer_2  # the loader looks at it for its shapes
    return shell


def _with_component(
    weights: Mapping[str, torch.Tensor], component: str, module: nn.Module
) -> dict[str, torch.Tensor]:
    """Keys as PEFT itself writes them, which name layers only, with their component in front."""
    layers = {name for name, _ in module.named_modules()}
    renamed = {}
    for key, weight in weights.items():
        bare = key.removeprefix("base_model.model.")
        named = bare.split(".lora")[0] in layers
        renamed[f"{component}.{bare}" if named else key] = weight
    return renamed


def hollow(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy with the structure, shapes, dtypes and device of a module, but no memory."""
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        empty = torch.zeros((), dtype=tensor.dtype, device=device).expand(tensor.shape)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(empty, requires_grad=False) if is_parameter else empty
    for part in module.modules():  # what offloading put there holds weights, too
        memo |= {id(part.__dict__[name]): None for name in _HOOKS & part.__dict__.keys()}
    return copy.deepcopy(module, memo)


def _changes(
    file: LoRAFile, loaded: nn.Module, module: nn.Module
) -> Iterator[tuple[str, LayerChange]]:
    """What PEFT made of the file, by layer of the real module."""
    from peft.tuners.lora.layer import LoraLayer

    for name, wrapped in loaded.named_modules():
        if not isinstance(wrapped, LoraLayer):
            continue
        layer = module.get_submodule(name)
        if _NAME not in wrapped.lora_A or not isinstance(layer, _LAYERS):
            raise _bad(file, f"layer {name} is a {type(layer).__name__}, which takes no LoRA here")
        down, up = wrapped.lora_A[_NAME], wrapped.lora_B[_NAME]
        if any(weight.is_meta for weight in (*down.parameters(), *up.parameters())):
            raise _bad(file, f"layer {name} has only one half of its weights")
        shapes = _wanted(layer, down.weight, up.weight)
        if shapes is not None:
            raise _bad(file, f"layer {name} {shapes}")
        rank = wrapped.r[_NAME]
        divisor = math.sqrt(rank) if wrapped.use_rslora.get(_NAME) else rank
        for weight in (*down.parameters(), *up.parameters()):
            weight.requires_grad_(False)
        yield name, LayerChange(down, up, wrapped.lora_alpha[_NAME], divisor)


def _wanted(layer: Any, down: Any, up: Any) -> str | None:
    """What is wrong with the weights of a change to a layer, if anything is."""
    inside, outside = layer.weight.shape[1], layer.weight.shape[0]
    if (down.shape[1], up.shape[0]) == (inside, outside):
        return None
    return f"goes from {down.shape[1]} to {up.shape[0]}, but must go from {inside} to {outside}"


def _example(modules: Mapping[str, nn.Module]) -> str:
    """A key that would fit."""
    for name, module in modules.items():
        layers = [path for path, part in module.named_modules() if isinstance(part, nn.Linear)]
        if layers:
            return f"{name}.{next((x for x in layers if 'attn' in x), layers[0])}.lora_A.weight"
    return "none"


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sizes = [line for line in lines if "size mismatch" in line]
    return (sizes or lines or [type(error).__name__])[0]


def _bad(file: LoRAFile, reason: str) -> ModelLoadFailed:
    return ModelLoadFailed(
        f"LoRA {file.name!r} ({file.path}) cannot be loaded: {reason}",
        field="loras",
        value=file.name,
    )
