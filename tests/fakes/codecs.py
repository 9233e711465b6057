"""Codecs of tiny speaking models, in engines of their own."""

from collections import defaultdict

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.engine.diffusion.cost import CostCurve
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.engine.diffusion.settings import EngineSettings
from omnistage.runtime.models import codec
from omnistage.runtime.models.checkpoint import Checkpoint
from omnistage.runtime.protocol.frames import Frame, Tensor
from tests.fakes import tiny_models

BROKEN = "Broken"
"""A voice of Qwen2.5-Omni's that makes no sound but NaN."""


def qwen25_codec(folder):
    speaker_map = tiny_models.qwen25_omni_speaking(folder).speaker_map
    usual = speaker_map["Chelsie"]
    longer = torch.cat([speaker_map["Ethan"]["ref_mel"]] * 2, 1)
    speaker_map["Ethan"] = {**speaker_map["Ethan"], "ref_mel": longer}
    speaker_map[BROKEN] = {**usual, "cond": torch.full_like(usual["cond"], torch.nan)}
    torch.save(speaker_map, folder / "spk_dict.pt")
    _tame(folder / "model.safetensors", "token2wav.code2wav_dit_model.")
    return Codec(folder)


def _tame(path, prefix):
    """Halve a part's weights: those of a random transformer make of rounding something to hear."""
    weights = {
        name: weight / 2 if name.startswith(prefix) and weight.ndim > 1 else weight
        for name, weight in load_file(path).items()
    }
    save_file(weights, path, metadata={"format": "pt"})


def qwen3_codec(folder):
    tiny_models.qwen3_omni_speaking(folder)
    return Codec(folder)


class Codec:
    """A loaded codec."""

    def __init__(self, folder):
        self.folder = folder
        self.checkpoint = Checkpoint.open(folder)
        self.stage = self.checkpoint.family.stages(self.checkpoint)["codec_decode"]
        self.model = codec.load(self.checkpoint, dtype="float32", device="cpu")

    def codes(self, count, seed=0):
        """Some codes: `[count]`, or `[count, groups]`."""
        config = self.checkpoint.index.get("code2wav_config")
        shape = (count, config["num_quantizers"]) if config else (count,)
        return np.random.default_rng(seed).integers(0, tiny_models.CODES, shape)

    def run(self, *tasks, **settings):
        """All tasks at once, to their ends."""
        run = Run(self, **settings)
        for task in tasks:
            run.engine.submit(task)
        return run.finish()

    def task(self, name, codes=None, *, voice="Chelsie", **params):
        """A task; without codes it follows them."""
        inputs = {} if codes is None else {"codes": frame(codes, voice)}
        followed = ("codes",) if codes is None else ()
        checked = self.stage.check_params(params)
        return StageTask(name, "model", "codec_decode", checked, inputs, followed=followed)


def frame(codes, voice="Chelsie"):
    return Frame({"kind": "codes", "voice": voice}, {"codes": Tensor.of(codes)})


class Run:
    """An engine and what its tasks came to."""

    def __init__(self, codec, **settings):
        settings = EngineSettings(**{"profile": False, **settings})
        self.engine = DiffusionEngine({"model": lambda: codec.model}, settings)
        self.events = defaultdict(list)

    def step(self):
        for event in self.engine.step():
            self.events[event.task].append(event)
        self.engine.check_integrity()

    def finish(self):
        while self.engine.busy:
            self.step()
        return self

    def feed(self, name, parts, voice="Chelsie"):
        """Give a task its codes in parts, each when those before it are used up."""
        for part in parts:
            self.engine.feed(name, "codes", frame(part, voice))
            self.finish()
        self.engine.feed(name, "codes", None)
        return self.finish()

    def fate(self, name):
        return self.events[name][-1].kind

    def error(self, name):
        return self.events[name][-1].error

    def sound(self, name):
        """The whole waveform `[samples]`."""
        last = self.events[name][-1]
        assert last.kind == "done", last
        audio = last.outputs["audio"]
        assert audio.header == {"kind": "audio", "rate": 24000}
        return _waveform(audio)

    def parts(self, name):
        """The waveforms that were told in parts."""
        return [_waveform(e.outputs["audio"]) for e in self.events[name] if e.kind == "part"]

    @property
    def forwards(self):
        return self.engine.stats()["forwards"]


def fill_batches(monkeypatch):
    """Batches take all that fits: how many is else a matter of how fast the machine is."""
    monkeypatch.setattr(CostCurve, "full_tokens", lambda curve, share: None)


def _waveform(audio):
    array = audio.tensors["waveform"].array
    assert array.dtype == np.float32
    assert array.shape[:2] == (1, 1)
    return torch.from_numpy(array.copy())[0, 0]


def assert_close(ours, theirs, tolerance):
    """Equal to within `tolerance` of the largest value."""
    assert ours.shape == theirs.shape
    difference = float((ours - theirs).abs().max())
    assert difference <= tolerance * float(theirs.abs().max()), difference
