"""Every scheduler that is listed runs, gives what diffusers gives with it, and draws its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from omnistage.runtime.models.modular.schedulers import make_scheduler, scheduler_names
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.tests.fakes import denoising
from omnistage.tests.fakes.denoising import Denoising, request, run

FLOW = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
DPM = diffusers.DPMSolverMultistepScheduler

FAMILIES: Mapping[Callable[[], Denoising], tuple[str, set[str]]] = {
    denoising.qwen_image: ("sigmas", {"euler", "unipc"}),
    denoising.z_image: ("sigmas", {"euler", "unipc"}),
    denoising.flux: ("flow", {"euler", "unipc", "dpmpp_2m", "dpmpp_2s", "deis"}),
    denoising.wan: ("steps", {"euler", "heun", "unipc", "dpmpp_2m", "dpmpp_2s", "deis"}),
    denoising.stable_diffusion_3: (
        "steps",
        {"euler", "heun", "unipc", "dpmpp_2m", "dpmpp_2s", "deis"},
    ),
}
"""What the blocks give the scheduler, and what it can then be swapped for."""

NOISE = {
    "euler": (diffusers.EulerDiscreteScheduler, {}),
    "euler_karras": (diffusers.EulerDiscreteScheduler, {"use_karras_sigmas": True}),
    "euler_ancestral": (diffusers.EulerAncestralDiscreteScheduler, {}),
    "heun": (diffusers.HeunDiscreteScheduler, {}),
    "dpm_2": (diffusers.KDPM2DiscreteScheduler, {}),
    "dpm_2_ancestral": (diffusers.KDPM2AncestralDiscreteScheduler, {}),
    "dpmpp_2m": (DPM, {}),
    "dpmpp_2m_karras": (DPM, {"use_karras_sigmas": True}),
    "dpmpp_2m_sde": (DPM, {"algorithm_type": "sde-dpmsolver++"}),
    "dpmpp_2m_sde_karras": (
        DPM,
        {"algorithm_type": "sde-dpmsolver++", "use_karras_sigmas": True},
    ),
    "dpmpp_2s": (diffusers.DPMSolverSinglestepScheduler, {}),
    "unipc": (diffusers.UniPCMultistepScheduler, {}),
    "deis": (diffusers.DEISMultistepScheduler, {}),
    "sa_solver": (diffusers.SASolverScheduler, {}),
    "pndm": (diffusers.PNDMScheduler, {}),
    "ddim": (diffusers.DDIMScheduler, {"clip_sample": False}),
    "ddpm": (diffusers.DDPMScheduler, {"clip_sample": False}),
    "lcm": (diffusers.LCMScheduler, {}),
    "tcd": (diffusers.TCDScheduler, {}),
}
FLOW_CLASSES = {
    "unipc": diffusers.UniPCMultistepScheduler,
    "dpmpp_2m": DPM,
    "dpmpp_2s": diffusers.DPMSolverSinglestepScheduler,
    "deis": diffusers.DEISMultistepScheduler,
}


def config_of(family: Denoising) -> dict[str, Any]:
    """As `scheduler_config.json` has it."""
    return {"_class_name": type(family.scheduler).__name__, **family.scheduler.config}


def by_diffusers(family: Denoising, name: str) -> Any:
    """The scheduler as a user of diffusers would make it."""
    config = family.scheduler.config
    if family is denoising.stable_diffusion_xl():
        cls, changes = NOISE[name]
        return cls.from_config(config, **changes)
    shift = config.get("flow_shift", config.get("shift"))
    if name == "euler":
        return diffusers.FlowMatchEulerDiscreteScheduler.from_config(config, shift=shift)
    if name == "heun":
        return diffusers.FlowMatchHeunDiscreteScheduler.from_config(config, shift=shift)
    return FLOW_CLASSES[name].from_config(config, **FLOW, flow_shift=shift)


@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_flow_matching_schedulers(make: Callable[[], Denoising]) -> None:
    family = make()
    schedule, expected = FAMILIES[make]
    names = scheduler_names(config_of(family), schedule=schedule)  # type: ignore[arg-type]
    assert names[0] == "default"
    assert set(names[1:]) == expected
    check(family, names[1:])


def test_noise_predicting_schedulers() -> None:
    family = denoising.stable_diffusion_xl()
    names = scheduler_names(config_of(family))
    assert names == ("default", *NOISE)
    check(family, names[1:])


def check(family: Denoising, names: tuple[str, ...]) -> None:
    """All at once, each next to all others: strict gives diffusers' bits, merging nearly."""
    requests = [request(scheduler=name, prompt=i % 2, seed=i) for i, name in enumerate(names)]
    exact = run(family.engine(strict=True), requests)
    merged = run(family.engine(mode="grouped"), requests)
    for i, name in enumerate(names):
        scheduler = by_diffusers(family, name)
        if name == "unipc" and family is denoising.z_image():
            scheduler = TakesLists(scheduler)
        want = family.reference(scheduler=scheduler, prompt=i % 2, seed=i)
        assert want.isfinite().all(), name
        assert torch.equal(exact[i], want), name
        assert (merged[i] - want).abs().max() <= 2e-5 * want.abs().max(), name


class TakesLists:
    """Z-Image's blocks give a list, diffusers' UniPC computes with an array."""

    def __init__(self, scheduler: Any) -> None:
        self.__dict__["scheduler"] = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["scheduler"], name)

    def __deepcopy__(self, memo: Any) -> TakesLists:
        return self

    def set_timesteps(self, *, sigmas: Any, device: Any = None, mu: Any = None) -> None:
        self.scheduler.set_timesteps(sigmas=np.array(sigmas), device=device, mu=mu)


def test_noise_is_drawn_by_the_request_itself() -> None:
    family = denoising.stable_diffusion_xl()
    stochastic = ["euler_ancestral", "dpmpp_2m_sde", "sa_solver", "ddpm", "lcm", "tcd"]
    requests = [request(scheduler=name, seed=7) for name in stochastic]
    torch.manual_seed(0)
    alone = [run(family.engine(strict=True), [one])[0] for one in requests]
    torch.manual_seed(1)
    together = run(family.engine(strict=True), requests[::-1])[::-1]
    for name, a, b in zip(stochastic, alone, together, strict=True):
        assert torch.equal(a, b), name
    other = run(family.engine(strict=True), [request(scheduler="euler_ancestral", seed=8)])[0]
    assert not torch.equal(alone[0], other)


@pytest.mark.parametrize("name", ["euler", "unipc", "dpmpp_2m", "dpmpp_2s", "deis"])
def test_flow_matching_schedulers_start_from_a_latent(name: str) -> None:
    scheduler = make_scheduler(denoising.stable_diffusion_3().scheduler, name)
    scheduler.set_timesteps(8)
    scheduler.set_begin_index(4)
    sample, noise = torch.randn(2, 1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    started = scheduler.scale_noise(sample, scheduler.timesteps[4:5], noise)
    sigma = scheduler.sigmas[4]
    assert torch.allclose(started, sigma * noise + (1 - sigma) * sample)


def test_a_scheduler_is_the_requests_own() -> None:
    base = denoising.qwen_image().scheduler
    before = dict(base.config)
    for name in scheduler_names(config_of(denoising.qwen_image())):
        one, other = make_scheduler(base, name), make_scheduler(base, name)
        assert one is not other
        one.set_timesteps(sigmas=[1.0, 0.5], mu=0.7)
        assert len(one.timesteps) == 2
        assert len(other.timesteps) != 2
    assert dict(base.config) == before
    assert len(base.timesteps) == 1000


def test_the_schedule_of_the_checkpoint_is_kept() -> None:
    base = denoising.qwen_image().scheduler
    made = make_scheduler(base, "unipc")
    for word in ("max_shift", "shift_terminal", "use_dynamic_shifting"):
        assert made.config[word] == base.config[word]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"_class_name": "HeliosScheduler"}, ("default",)),
        ({"_class_name": "FlowMatchLCMScheduler"}, ("default",)),
        ({"_class_name": "UniPCMultistepScheduler"}, ("default", *NOISE)),
        (
            {"_class_name": "FlowMatchEulerDiscreteScheduler", "stochastic_sampling": True},
            ("default",),
        ),
        (
            {"_class_name": "FlowMatchEulerDiscreteScheduler", "use_karras_sigmas": True},
            ("default",),
        ),
        (
            {
                "_class_name": "FlowMatchEulerDiscreteScheduler",
                "use_dynamic_shifting": True,
                "time_shift_type": "linear",
            },
            ("default", "euler"),
        ),
    ],
)
def test_what_a_config_can_be_swapped_for(config: dict[str, Any], names: tuple[str, ...]) -> None:
    assert scheduler_names(config) == names


def test_flux_schnell_has_a_fixed_shift() -> None:
    config = {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0}
    assert scheduler_names(config, schedule="flow") == ("default", "euler", "unipc")


@pytest.mark.parametrize("name", ["lcm", "dpmpp_2m_sde", "nonsense"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no scheduler") as caught:
        make_scheduler(denoising.wan().scheduler, name)
    assert caught.value.field == "scheduler"
    assert "dpmpp_2m" in (caught.value.allowed or "")
