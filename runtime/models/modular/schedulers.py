"""Schedulers by the names that users know; each request has one of its own.

A name stands for a scheduler of diffusers, made from the checkpoint's own config as
`from_config` makes it. Left out are

- those that draw noise without being handed the request's generator, which are all that draw noise
  in a flow-matching family (`lcm`, `dpmpp_2m_sde`, `sa_solver`): diffusers' loops hand it to none;
- `lms` and `dpmpp_sde`, which need scipy and torchsde, and `dpmpp_sde` draws as above;
- `ipndm` and the EDM ones, which have a noise schedule of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from inspect import signature
from typing import Any, Final, Literal

import numpy as np

from ...protocol.errors import InvalidRequest

Schedule = Literal["sigmas", "flow", "steps"]
"""What a family's blocks give a flow-matching scheduler: the sigmas; nothing but the shift if it
makes flow sigmas itself, else the sigmas; or always the number of steps."""

_FLOW: Final[Mapping[str, str]] = {
    "euler": "FlowMatchEulerDiscreteScheduler",
    "heun": "FlowMatchHeunDiscreteScheduler",
    "unipc": "UniPCMultistepScheduler",
    "dpmpp_2m": "DPMSolverMultistepScheduler",
    "dpmpp_2s": "DPMSolverSinglestepScheduler",
    "deis": "DEISMultistepScheduler",
}

_NOISE: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "euler": ("EulerDiscreteScheduler", {}),
    "euler_karras": ("EulerDiscreteScheduler", {"use_karras_sigmas": True}),
    "euler_ancestral": ("EulerAncestralDiscreteScheduler", {}),
    "heun": ("HeunDiscreteScheduler", {}),
    "dpm_2": ("KDPM2DiscreteScheduler", {}),
    "dpm_2_ancestral": ("KDPM2AncestralDiscreteScheduler", {}),
    "dpmpp_2m": ("DPMSolverMultistepScheduler", {}),
    "dpmpp_2m_karras": ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    "dpmpp_2m_sde": ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "dpmpp_2m_sde_karras": (
        "DPMSolverMultistepScheduler",
        {"algorithm_type": "sde-dpmsolver++", "use_karras_sigmas": True},
    ),
    "dpmpp_2s": ("DPMSolverSinglestepScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
    "deis": ("DEISMultistepScheduler", {}),
    "sa_solver": ("SASolverScheduler", {}),
    "pndm": ("PNDMScheduler", {}),
    "ddim": ("DDIMScheduler", {}),
    "ddpm": ("DDPMScheduler", {}),
    "lcm": ("LCMScheduler", {}),
    "tcd": ("TCDScheduler", {}),
}

_TAKE_SIGMAS: Final = frozenset({"euler", "unipc"})
_OF_FIXED_SHIFT: Final = frozenset({"heun"})
_OWN_SPACING: Final = ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas")
_ODD: Final = ("invert_sigmas", "stochastic_sampling")


def scheduler_names(config: Mapping[str, Any], *, schedule: Schedule = "sigmas") -> tuple[str, ...]:
    """What a checkpoint's scheduler can be swapped for, `default` first.

    Args:
        config: the checkpoint's `scheduler_config.json`.
        schedule: what the family's blocks give a flow-matching scheduler.
    """
    if _is_flow(config):
        return ("default", *_flow_names(config, schedule))
    if config.get("_class_name") in {name for name, _ in _NOISE.values()}:
        return ("default", *_NOISE)
    return ("default",)


def make_scheduler(base: Any, name: str) -> Any:
    """A scheduler that only this request uses.

    Args:
        base: the checkpoint's own; it is left as it is.
        name: one of `scheduler_names`.

    Raises:
        InvalidRequest: the checkpoint has no such scheduler.
    """
    if name == "default":
        return copy.deepcopy(base)
    config = {"_class_name": type(base).__name__, **base.config}
    known = _FLOW if _is_flow(config) else _NOISE
    if name not in known:
        raise InvalidRequest(
            f"This model has no scheduler {name!r}.",
            field="scheduler",
            value=name,
            allowed=", ".join(scheduler_names(config, schedule="steps")),
            stage="sample",
        )
    if _is_flow(config):
        return _flow_scheduler(base.config, _FLOW[name])
    class_name, changes = _NOISE[name]
    # latents have no range to clip to, but this is what a config without a word means
    unclipped = {} if "clip_sample" in config else {"clip_sample": False}
    return _class(class_name).from_config(base.config, **_known(class_name, unclipped), **changes)


def _is_flow(config: Mapping[str, Any]) -> bool:
    name = config.get("_class_name", "")
    return bool(name in _FLOW.values()) and bool(
        name.startswith("FlowMatch") or config.get("use_flow_sigmas")
    )


def _flow_names(config: Mapping[str, Any], schedule: Schedule) -> tuple[str, ...]:
    if any(config.get(word) for word in (*_OWN_SPACING, *_ODD)):
        return ()  # schedulers mean different things by these
    dynamic = bool(config.get("use_dynamic_shifting"))
    exponential = config.get("time_shift_type", "exponential") == "exponential"
    names = set(_FLOW) if exponential else {"euler"}
    if schedule == "sigmas" or (schedule == "flow" and not dynamic):
        names &= _TAKE_SIGMAS
    if schedule == "flow" or dynamic:
        names -= _OF_FIXED_SHIFT
    if config.get("shift_terminal"):
        names &= _TAKE_SIGMAS  # the others end where they like
    return tuple(name for name in _FLOW if name in names)


def _flow_scheduler(config: Mapping[str, Any], class_name: str) -> Any:
    shift = config.get("flow_shift", config.get("shift", 1.0))
    if class_name.startswith("FlowMatch"):
        return _class(class_name).from_config(config, shift=shift)
    named = {name: value for name, value in config.items() if name != "shift"}  # a warning less
    return _startable(class_name).from_config(
        named, use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=shift
    )


def _class(name: str) -> Any:
    import diffusers

    return getattr(diffusers, name)


def _known(class_name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the changes that the class has heard of."""
    known = _class(class_name)._get_init_keys(_class(class_name))
    return {name: value for name, value in changes.items() if name in known}


@cache
def _startable(class_name: str) -> Any:
    """The class as the blocks of flow matching want it.

    They start from a picture by `scale_noise`, and some give the sigmas as a list.
    """
    cls: Any = _class(class_name)

    class Startable(cls):
        def scale_noise(self, sample: Any, timestep: Any, noise: Any) -> Any:
            return self.add_noise(sample, noise, timestep)

    class WithSigmas(Startable):
        def set_timesteps(
            self,
            num_inference_steps: Any = None,
            device: Any = None,
            sigmas: Any = None,
            mu: Any = None,
        ) -> None:
            sigmas = None if sigmas is None else np.array(sigmas)
            super().set_timesteps(num_inference_steps, device=device, sigmas=sigmas, mu=mu)

    # blocks look whether `sigmas` is among the parameters
    made = WithSigmas if "sigmas" in signature(cls.set_timesteps).parameters else Startable
    made.__name__ = class_name
    return made
