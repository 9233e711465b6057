"""Files of weights as people keep them: fp8, scaled fp8, GGUF, and files with a header only."""

from __future__ import annotations

import json
import struct

import torch
from safetensors.torch import save_file

FP8 = torch.float8_e4m3fn
_LARGEST = 448.0


def save(tensors, path, prefix=""):
    save_file({prefix + k: v.contiguous().clone() for k, v in tensors.items()}, path)
    return path


def fp8(tensors):
    return {k: v.to(FP8) if v.ndim == 2 else v for k, v in tensors.items()}


def fp8_scaled(tensors, word="scale_weight"):
    """ComfyUI's: each matrix divided by its own number."""
    out = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and name.endswith(".weight"):
            scale = tensor.abs().max() / _LARGEST
            out[name] = (tensor / scale).to(FP8)
            out[name.removesuffix("weight") + word] = scale.reshape(())
        else:
            out[name] = tensor
    if word == "scale_weight":
        out["scaled_fp8"] = torch.zeros(2, dtype=FP8)
    return out


def save_gguf(tensors, path, kind="Q8_0", architecture="any"):
    """Matrices whose rows fit the blocks are quantised, the rest stays float32."""
    import gguf

    quant = gguf.GGMLQuantizationType[kind]
    block = gguf.constants.GGML_QUANT_SIZES[quant][0]
    writer = gguf.GGUFWriter(str(path), architecture)
    for name, tensor in tensors.items():
        array = tensor.float().numpy()
        if tensor.ndim > 4:
            writer.add_array(f"comfy.gguf.orig_shape.{name}", list(tensor.shape))
            array = array.reshape(tensor.shape[0], -1)
        if tensor.ndim == 2 and tensor.shape[1] % block == 0:
            writer.add_tensor(name, gguf.quants.quantize(array, quant), raw_dtype=quant)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def save_header(shapes, path, dtype="BF16", metadata=None):
    """A safetensors file of the right length without data: a hole takes no space on disk."""
    width = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}[dtype]
    head, offset = {}, 0
    for name, shape in shapes.items():
        size = width * torch.Size(shape).numel()
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    if metadata:
        head["__metadata__"] = metadata
    text = json.dumps(head).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    return path
