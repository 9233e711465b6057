"""A module from one file of weights and a config: names, scales and types made diffusers' own.

Nothing is loaded in part: a file whose tensors are not exactly the module's is refused.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..protocol.errors import ModelLoadFailed
from .component_source import ComponentSource
from .descale import check_notes, descaled, is_note
from .file_kind import SCALES
from .tensor_file import TensorFile, TensorInfo, read_tensor_file

Tensors = dict[str, torch.Tensor]

_LEFTOVERS = frozenset(
    {"logit_scale", "spiece_model", "tekken_model", "position_ids", "__index_timestep_zero__"}
)
"""Last words of names that ComfyUI's files hold beside the weights, which no module has."""
_UNUSED_HEADS = frozenset({"text_projection.weight", "lm_head.weight"})
"""Layers after a text encoder, which not every use of it has."""
_NAMED = 3
"""Tensors that an error names."""
_INTEGER_BYTES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}


def load_file_module(source: ComponentSource, cls: Any, *, dtype: str, device: str) -> nn.Module:
    """A module of a class of diffusers or transformers, in evaluation mode, from a file.

    Args:
        source: with a `file`; its folder holds `config.json`, unless it has a `config`.
        cls: the module's class.
        dtype: of weights that are not quantised, and of the arithmetic on those that are.
        device: where to put it.

    Raises:
        ModelLoadFailed: names the file and what is wrong with it.
    """
    file = read_tensor_file(_file(source))
    wanted = getattr(torch, dtype)
    load = _load_diffusers if hasattr(cls, "load_config") else _load_transformers
    try:
        module: nn.Module = load(file, source, cls, wanted)
    except ModelLoadFailed:
        raise
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, IndexError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _failure(
            file,
            f"cannot be loaded as {source.name} ({cls.__name__}): {reason}. "
            "Its tensors are not named or shaped as that model's",
        ) from error
    return module.eval().requires_grad_(False).to(device)


def file_weight_bytes(source: ComponentSource, dtype: str) -> int:
    """Bytes of a file's weights as they will be in memory, from the header only.

    Raises:
        ModelLoadFailed: see `read_tensor_file`.
    """
    file = read_tensor_file(_file(source))
    return sum(
        stored_bytes(info, dtype)
        for name, info in file.tensors.items()
        if name.startswith(source.prefix) and not _is_extra(name)
    )


def _load_diffusers(
    file: TensorFile, source: ComponentSource, cls: Any, dtype: torch.dtype
) -> nn.Module:
    from accelerate import init_empty_weights

    config = source.config or cls.load_config(source.folder, local_files_only=True)
    with init_empty_weights():
        empty = cls.from_config(config)
    tensors = _converted(_read(file, source, dtype), empty, dict(config), file)
    _check_cover(tensors, empty, file)
    tensors = _cast(tensors, empty, dtype)
    if file.format == "gguf":
        return _load_gguf(tensors, source.folder, cls, dtype)
    empty.load_state_dict(tensors, strict=True, assign=True)
    if not _kept_in_float32(cls):
        nn.Module.to(empty, dtype)  # buffers that are in no file; diffusers' own `to` would warn
    return empty


def _load_gguf(tensors: Tensors, folder: Path, cls: Any, dtype: torch.dtype) -> nn.Module:
    """Quantised linear layers, dequantised as they run."""
    from diffusers import GGUFQuantizationConfig

    module: nn.Module = cls.from_single_file(
        tensors,
        config=str(folder),
        quantization_config=GGUFQuantizationConfig(compute_dtype=dtype),
        dtype=dtype,
        local_files_only=True,
    )
    return module


def _load_transformers(
    file: TensorFile, source: ComponentSource, cls: Any, dtype: torch.dtype
) -> nn.Module:
    if file.format == "gguf":
        raise _failure(file, "is a GGUF text encoder. Take a safetensors version of it")
    config = cls.config_class.from_pretrained(source.folder, local_files_only=True)
    tensors = _text_encoder_names(_read(file, source, dtype))
    quiet = logging.getLogger("transformers.modeling_utils")
    quiet.addFilter(_is_no_report)
    try:
        module, report = cls.from_pretrained(
            None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
        )
    finally:
        quiet.removeFilter(_is_no_report)
    wrong = [str(name[0]) for name in report["mismatched_keys"]]
    unexpected = set(report["unexpected_keys"]) - _UNUSED_HEADS
    _refuse(file, cls, report["missing_keys"], unexpected, wrong)
    return module


def _is_no_report(record: logging.LogRecord) -> bool:
    """Leaves out transformers' table of names: what is wrong becomes an error here."""
    return "LOAD REPORT" not in record.getMessage()


def _read(file: TensorFile, source: ComponentSource, dtype: torch.dtype) -> Tensors:
    """The component's tensors by their names without the prefix; fp8 made `dtype`."""
    check_notes(file.metadata, file=str(file.path))
    if file.format == "gguf":
        tensors = _read_gguf(file)
    else:
        tensors = _read_safetensors(file.files, source.prefix)
    start = len(source.prefix)
    mine = {k[start:]: v for k, v in tensors.items() if k.startswith(source.prefix)}
    plain = descaled(mine, dtype, file=str(file.path))
    return {name: tensor for name, tensor in plain.items() if not _is_extra(name)}


def _read_safetensors(files: Iterable[Path], prefix: str) -> Tensors:
    from safetensors import safe_open

    found: Tensors = {}
    for path in files:
        with safe_open(path, framework="pt") as shard:
            names = [name for name in shard.keys() if name.startswith(prefix)]  # noqa: SIM118
            found |= {name: shard.get_tensor(name) for name in names}
    return found


def _read_gguf(file: TensorFile) -> Tensors:
    from diffusers.models.model_loading_utils import load_gguf_checkpoint

    tensors: Tensors = load_gguf_checkpoint(str(file.path))
    for name, shape in file.metadata.items():
        # GGUF has four dimensions at most; the original shape of a larger one is noted so.
        key = name.removeprefix("comfy.gguf.orig_shape.")
        if key != name and key in tensors:
            tensors[key] = _dequantised(tensors[key]).reshape(shape)
    return tensors


def _dequantised(tensor: torch.Tensor) -> torch.Tensor:
    from diffusers.quantizers.gguf.utils import GGUFParameter, dequantize_gguf_tensor

    return dequantize_gguf_tensor(tensor) if isinstance(tensor, GGUFParameter) else tensor


def _converted(
    tensors: Tensors, module: nn.Module, config: Mapping[str, Any], file: TensorFile
) -> Tensors:
    """The tensors under the module's names; untouched if they have them already."""
    known = module.state_dict().keys()
    if tensors.keys() <= known:
        return tensors
    convert = _converter(type(module).__name__)
    if convert is None:
        strange = [name for name in tensors if name not in known]
        raise _failure(
            file,
            f"has {len(strange)} tensors that {type(module).__name__} lacks "
            f"({_some(strange)}), and there is no mapping from other names to this class. "
            "Take a file, or a folder, in diffusers' names",
        )
    return convert(tensors, config)


def _converter(cls: str) -> Callable[[Tensors, Mapping[str, Any]], Tensors] | None:
    """What renames the published names to a class's own: diffusers' function, where it has one."""
    from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES as KNOWN

    # Equal to a class that diffusers maps, in all names and shapes.
    alike = {"AutoencoderKLQwenImage": "AutoencoderKLWan", "AutoencoderKLFlux2": "AutoencoderKL"}
    name = alike.get(cls, cls)
    if name not in KNOWN:
        return None
    mapping = KNOWN[name]["checkpoint_mapping_fn"]

    def convert(tensors: Tensors, config: Mapping[str, Any]) -> Tensors:
        if cls == "UNet2DConditionModel":  # this mapping looks for the prefix
            tensors = {f"model.diffusion_model.{k}": v for k, v in tensors.items()}
        apart = _BEYOND[cls](tensors) if cls in _BEYOND else {}
        takes_config = "config" in inspect.signature(mapping).parameters
        given = {"config": config} if takes_config else {}
        mapped = {**mapping(checkpoint=dict(tensors), **given), **apart}
        return {name: tensor for name, tensor in mapped.items() if tensor is not None}

    return convert


def _flux2_extras(tensors: Tensors) -> Tensors:
    """What FLUX.2's VAE has beyond the older one's tensors."""
    return {
        re.sub(r"^(encoder|decoder)\.", "", name): tensor
        for name, tensor in tensors.items()
        if "quant_conv" in name or name.startswith("bn.")
    }


def _size_embedding(tensors: Tensors) -> Tensors:
    """What a ControlNet of Stable Diffusion XL has beyond the tensors of older ones."""
    names = {
        "label_emb.0.0.": "add_embedding.linear_1.",
        "label_emb.0.2.": "add_embedding.linear_2.",
    }
    return {
        new + name.removeprefix(old): tensor
        for name, tensor in tensors.items()
        for old, new in names.items()
        if name.startswith(old)
    }


_BEYOND = {"AutoencoderKLFlux2": _flux2_extras, "ControlNetModel": _size_embedding}
"""By class, what diffusers' mapping leaves out."""


def _text_encoder_names(tensors: Tensors) -> Tensors:
    """OpenCLIP's names made transformers' own; others are transformers' business."""
    if "text_projection" not in tensors:
        return tensors
    if "positional_embedding" in tensors:
        from diffusers.loaders.single_file_utils import convert_open_clip_checkpoint

        renamed: Tensors = convert_open_clip_checkpoint(None, tensors, prefix="")
        return renamed
    rest = {name: tensor for name, tensor in tensors.items() if name != "text_projection"}
    return rest | {"text_projection.weight": tensors["text_projection"].T.contiguous()}


def _check_cover(tensors: Tensors, module: nn.Module, file: TensorFile) -> None:
    expected = module.state_dict()
    missing = expected.keys() - tensors.keys()
    unexpected = tensors.keys() - expected.keys()
    wrong = [k for k, v in expected.items() if k in tensors and _shape(tensors[k]) != v.shape]
    _refuse(file, type(module), missing, unexpected, wrong)


def _refuse(
    file: TensorFile,
    cls: type,
    missing: Iterable[str],
    unexpected: Iterable[str],
    wrong: Iterable[str],
) -> None:
    faults = {
        "lacks": sorted(missing),
        "has unknown": sorted(name for name in unexpected if not _is_extra(name)),
        "has wrongly shaped": sorted(wrong),
    }
    words = [f"{verb} {len(names)} ({_some(names)})" for verb, names in faults.items() if names]
    if words:
        raise _failure(
            file,
            f"does not hold the tensors of {cls.__name__} with this config: it "
            f"{' and '.join(words)}. The file is of another model or size, or the config is",
        )


def _shape(tensor: torch.Tensor) -> torch.Size:
    from diffusers.quantizers.gguf.utils import GGUFParameter

    return tensor.quant_shape if isinstance(tensor, GGUFParameter) else tensor.shape


def _cast(tensors: Tensors, module: nn.Module, dtype: torch.dtype) -> Tensors:
    """Floats as `dtype`, as `from_pretrained` does; only linear layers stay quantised."""
    from diffusers.quantizers.gguf.utils import GGUFParameter

    kept = _kept_in_float32(type(module))
    linear = {f"{name}.weight" for name, m in module.named_modules() if isinstance(m, nn.Linear)}
    cast = {}
    for name, tensor in tensors.items():
        whole = bool(kept & set(name.split(".")))
        if isinstance(tensor, GGUFParameter):
            if name in linear and not whole:
                cast[name] = tensor
                continue
            tensor = _dequantised(tensor)  # noqa: PLW2901
        target = torch.float32 if whole else dtype
        floating = tensor.is_floating_point()
        cast[name] = (tensor.to(target) if floating else tensor).contiguous()
    return cast


def _kept_in_float32(cls: Any) -> frozenset[str]:
    """Names of modules that a class wants in float32 whatever the rest is."""
    return frozenset(cls._keep_in_fp32_modules or ())


def _is_extra(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return last in _LEFTOVERS or last in SCALES or is_note(name)


def stored_bytes(info: TensorInfo, dtype: str) -> int:
    """Bytes that a tensor of a file takes in memory, where floats are loaded as `dtype`."""
    elements = torch.Size(info.shape).numel()
    if info.dtype.startswith(("F8_", "F16", "BF16", "F32", "F64")):
        return elements * torch.finfo(getattr(torch, dtype)).bits // 8
    if info.dtype in _INTEGER_BYTES:
        return elements * _INTEGER_BYTES[info.dtype]
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    if info.dtype in GGMLQuantizationType.__members__:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType[info.dtype]]
        return elements // block * size
    return elements


def _file(source: ComponentSource) -> Path:
    if source.file is None:
        raise ValueError(f"{source.name} is a folder")
    return source.file


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = ", …" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _failure(file: TensorFile, words: str) -> ModelLoadFailed:
    return ModelLoadFailed(f"The file {file.path} {words}.", field=file.path.name)
