"""What is in memory: components loaded when they are needed, under a budget of bytes.

The budget is for weights; what forwards need besides is not in it. When another component needs
room, the one that was not used for longest goes. Its module objects stay, with proxies, hooks and
adapters on them: only the storage of their parameters is taken away and given back.

Weights come back through the loader that gave them first. So each has its old place and alignment,
and results equal those before to the last bit.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from ...models.modules import Component, Modules
from ...models.program import LoadedModel
from ...protocol.errors import ModelLoadFailed

log = logging.getLogger(__name__)

HOST: Final = torch.device("cpu")
Key = tuple[str, str]
"""A model's id, and the name of one of its modules."""


@dataclass(eq=False, slots=True)
class Place:
    """One component of one model, wherever its weights are.

    Attributes:
        nbytes: of its weights; as declared, and once it was built, as measured.
        charge: what it takes of the budget when it is resident: all, or if it is offloaded, the
            largest of the parts that come to the device one by one.
        kept: bytes of buffers, which stay on the device when the weights go.
        modules: none before it is built.
        weights: its parameters by name, each once.
        host: their data on the host, in the same order, while that is kept.
        resident: whether a forward can run.
        used: when it was last used, as a count.
    """

    model: str
    name: str
    component: Component
    offloaded: bool = False
    nbytes: int = 0
    charge: int = 0
    kept: int = 0
    modules: dict[str, torch.nn.Module] = field(default_factory=dict)
    weights: dict[str, torch.nn.Parameter] = field(default_factory=dict)
    host: list[torch.Tensor] | None = None
    resident: bool = False
    used: int = 0

    def __str__(self) -> str:
        return f"{self.model}/{self.name}"


class Residency:
    """Components of all models of an engine, and the budget they share.

    A component is first built, which gives its modules, and then loaded, which puts its weights
    on the device. On the CPU that is one and the same.

    Args:
        device: where forwards run.
        budget_bytes: weights on the device, at most; None: no limit.
        host_budget_bytes: weights that a GPU's engine keeps on the host, at most; None: no limit.

    Attributes:
        owed_s: how long the last load took, less what forwards have had since: until it is spent,
            forwards go before loads, so that what waits for weights cannot stall what has them.
    """

    def __init__(
        self,
        device: torch.device = HOST,
        budget_bytes: int | None = None,
        host_budget_bytes: int | None = None,
    ) -> None:
        self._device = device
        self._budget = budget_bytes
        self._host_budget = host_budget_bytes
        self._places: dict[Key, Place] = {}
        self._fixed: dict[str, Mapping[str, torch.nn.Module]] = {}
        self._fixed_bytes: dict[str, int] = {}
        self._uses = 0
        self._counts: Counter[str] = Counter()
        self._load_s = 0.0
        self.owed_s = 0.0
        self._peak = 0

    def adopt(self, model: str, loaded: LoadedModel, *, offload: bool = False) -> None:
        """Take charge of a model's modules.

        Args:
            model: its id.
            loaded: modules that are in memory already stay there.
            offload: keep its weights on the host, and bring them to the device part by part.

        Raises:
            ModelLoadFailed: what is in memory already is more than the budget.
        """
        modules = loaded.modules
        if not isinstance(modules, Modules):
            nbytes = _nbytes(_tensors(modules.values()))
            self._make_room(f"Model {model}", nbytes)
            self._fixed[model], self._fixed_bytes[model] = modules, nbytes
            self._note_peak()
            return
        for name, component in modules.components.items():
            charge = 0 if offload and self._device != HOST else component.nbytes
            place = Place(model, name, component, offload, component.nbytes, charge)
            self._places.update({(model, module): place for module in component.modules})

    def module(self, model: str, name: str) -> torch.nn.Module | None:
        """A module; None if its component was not built yet.

        Raises:
            KeyError: the model has no such module.
        """
        fixed = self._fixed.get(model)
        return self._places[model, name].modules.get(name) if fixed is None else fixed[name]

    def ready(self, model: str, name: str) -> bool:
        """Whether a forward of a module can run now."""
        return model in self._fixed or self._places[model, name].resident

    def use(self, model: str, name: str) -> None:
        """Note that a module is used now."""
        if model not in self._fixed:
            self._uses += 1
            self._places[model, name].used = self._uses

    def build(self, model: str, name: str, spare: Collection[Key] = ()) -> None:
        """Make the modules of the component that a module belongs to; see `load`."""
        place = self._places[model, name]
        if self._device == HOST or place.offloaded:
            self.load(model, name, spare)
        elif not place.modules:
            self._build(place, spare)

    def load(self, model: str, name: str, spare: Collection[Key] = ()) -> None:
        """Put the weights of a module's component on the device.

        Args:
            model: the model's id.
            name: the module.
            spare: modules that are to stay if others can go, with their models.

        Raises:
            ModelLoadFailed: it is larger than the budget (nothing was evicted then), or its files
                do not give it.
        """
        place = self._places[model, name]
        if not place.resident:
            self.use(model, name)
            with self._timed():
                self._bring(place, spare)

    def stats(self) -> dict[str, Any]:
        """Numbers for people and metrics."""
        resident = [place for place in self._all() if place.resident]
        models = dict.fromkeys((place.model for place in self._all()), 0) | self._fixed_bytes
        for place in resident:
            models[place.model] += place.charge
        return {
            "memory_budget_bytes": self._budget or 0,
            "resident_bytes": self.resident_bytes,
            "peak_resident_bytes": self._peak,
            "host_bytes": self._host_bytes(),
            "loads": self._counts["loads"],
            "evictions": self._counts["evictions"],
            "load_s": round(self._load_s, 3),
            "models": models,
            "components": {str(place): place.charge for place in resident},
        }

    @property
    def resident_bytes(self) -> int:
        """Bytes of weights on the device, and of buffers, which are always there."""
        return self._lasting_bytes() + sum(p.charge - p.kept for p in self._all() if p.resident)

    def check_integrity(self) -> None:
        """Raise AssertionError if weights are where they should not be, or over the budget."""
        for place in self._all():
            if place.offloaded:
                continue
            weights = [weight for weight in place.weights.values() if weight.numel() > 1]
            there = [not _is_evicted(weight) for weight in weights]
            assert all(there) if place.resident else not any(there), f"{place} is torn"
        assert self._budget is None or self.resident_bytes <= self._budget

    # making room

    def _make_room(
        self, what: str, nbytes: int, spare: Collection[Key] = (), place: Place | None = None
    ) -> None:
        """Evict until `nbytes` more fit in.

        Args:
            what: they are for, in words.
            nbytes: to come.
            spare: modules that are to go last.
            place: what they are for; its buffers, which may be here already, are among them.

        Raises:
            ModelLoadFailed: they would not fit if all else was gone; nothing was evicted.
        """
        if self._budget is None:
            return
        lasting = self._lasting_bytes() - (place.kept if place else 0)
        if nbytes + lasting > self._budget:
            raise _too_big(what, nbytes, self._budget, lasting)
        nbytes -= place.kept if place else 0
        spared = {id(self._places[key]) for key in spare if key in self._places}
        while self.resident_bytes + nbytes > self._budget:
            self._evict(self._victim(spared))

    def _victim(self, spared: Collection[int]) -> Place:
        """Who goes first: what nobody waits for, and of that what was not used for longest."""
        able = (place for place in self._all() if place.resident and not place.offloaded)
        return min(able, key=lambda place: (id(place) in spared, place.used))

    def _evict(self, place: Place) -> None:
        log.info("evicting %s (%s)", place, _in_words(place.charge))
        for weight in place.weights.values():
            weight.data = _evicted(weight)
        place.resident = False
        self._counts["evictions"] += 1

    def _lasting_bytes(self) -> int:
        """Bytes that no eviction frees."""
        offloaded = sum(p.charge for p in self._all() if p.resident and p.offloaded)
        return (
            sum(self._fixed_bytes.values())
            + offloaded
            + sum(p.kept for p in self._all() if p.modules and not p.offloaded)
        )

    # loading

    def _build(self, place: Place, spare: Collection[Key]) -> None:
        with self._timed():
            self._read(place)
            self._make_room(str(place), 0, spare)  # for its buffers
            self.use(place.model, place.component.modules[0])
            self._trim_host()

    def _bring(self, place: Place, spare: Collection[Key]) -> None:
        """Put a component's weights on the device, and evict others for them."""
        what = f"The component {place.name} of model {place.model}"
        self._make_room(what, place.charge, spare, place)
        log.info("loading %s (%s)", place, _in_words(place.nbytes))
        if place.host is None and not (place.offloaded and place.modules):
            self._read(place)
        try:
            self._make_room(what, place.charge, spare, place)  # it may be more than was declared
            if not place.offloaded:
                self._to_device(place)
        finally:
            if self._device == HOST:
                place.host = None
        place.resident = True
        self._counts["loads"] += 1
        self._trim_host()
        self._note_peak()

    def _read(self, place: Place) -> None:
        """Let a component's loader give its weights, on the host."""
        modules = dict(place.component.build())
        weights = _parameters(modules)
        if not place.modules:
            self._take_first(place, modules, weights)
            return
        for name, weight in place.weights.items():
            if name not in weights or weights[name].shape != weight.shape:
                raise ModelLoadFailed(
                    f"The files of {place} are no longer those that it was first loaded from: "
                    f"{name} is missing or has another shape. Restart the runtime.",
                    field=place.name,
                )
        place.host = [weights[name].data for name in place.weights]

    def _take_first(
        self,
        place: Place,
        modules: dict[str, torch.nn.Module],
        weights: dict[str, torch.nn.Parameter],
    ) -> None:
        place.nbytes = _nbytes(_tensors(modules.values()))
        if place.offloaded:
            place.charge = offload_in_groups(modules.values(), self._device) or place.nbytes
            place.modules, place.weights = modules, weights
            return
        place.charge = place.nbytes
        place.host = [weight.data for weight in weights.values()]
        for weight in weights.values():
            weight.data = _evicted(weight, self._device)
        for module in modules.values():
            module.to(self._device)  # only buffers are left to move
        place.kept = place.nbytes - _nbytes(place.host)
        place.modules, place.weights = modules, weights

    def _to_device(self, place: Place) -> None:
        assert place.host is not None
        weights = list(place.weights.values())
        try:
            for weight, data in zip(weights, place.host, strict=True):
                weight.data = data.to(self._device)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        except BaseException:
            for weight in weights:
                weight.data = _evicted(weight)
            raise

    def _trim_host(self) -> None:
        """Let go of copies on the host until they are within its budget."""
        if self._host_budget is None:
            return
        for place in sorted((p for p in self._all() if p.host), key=lambda p: p.used):
            if self._host_bytes() <= self._host_budget:
                return
            place.host = None

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Weights are loaded outside of the engine's inference mode; takes the time, too."""
        start_s = time.perf_counter()
        with torch.inference_mode(False):
            yield
        self.owed_s = time.perf_counter() - start_s
        self._load_s += self.owed_s

    def _host_bytes(self) -> int:
        return sum(p.nbytes for p in self._all() if p.host)

    def _note_peak(self) -> None:
        self._peak = max(self._peak, self.resident_bytes)

    def _all(self) -> Iterable[Place]:
        return {id(place): place for place in self._places.values()}.values()


def offload_in_groups(modules: Iterable[torch.nn.Module], device: torch.device) -> int:
    """Have diffusers bring weights to a device layer by layer, and take them back.

    Returns:
        Bytes of the largest layer: what is on the device at a time. 0 on the CPU, where all stays.
    """
    from diffusers.hooks import apply_group_offloading

    largest = 0
    for module in modules:
        apply_group_offloading(module, device, HOST, offload_type="leaf_level")
        own = (_nbytes(leaf.parameters(recurse=False)) for leaf in module.modules())
        largest = max(largest, *own)
    return 0 if device == HOST else largest


def _too_big(what: str, nbytes: int, budget: int, lasting: int) -> ModelLoadFailed:
    room = f"{_in_words(budget)} (engine.diffusion.memory_mb)"
    taken = f", of which {_in_words(lasting)} cannot be freed" if lasting else ""
    return ModelLoadFailed(
        f"{what} takes {_in_words(nbytes)}, but the engine may hold {room}{taken}. "
        'Allow more, load it in a smaller dtype, or set offload = "group" for this model.',
        field="memory_mb",
        value=_in_words(nbytes),
        allowed=f"at most {_in_words(budget - lasting)}",
    )


def _in_words(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.2f} MB"


def _parameters(modules: Mapping[str, torch.nn.Module]) -> dict[str, torch.nn.Parameter]:
    """Parameters by name; what twins share, once."""
    found: dict[int, tuple[str, torch.nn.Parameter]] = {}
    for module_name, module in modules.items():
        for name, parameter in module.named_parameters():
            found.setdefault(id(parameter), (f"{module_name}.{name}", parameter))
    return dict(found.values())


def _tensors(modules: Iterable[torch.nn.Module]) -> Iterable[torch.Tensor]:
    for module in modules:
        yield from module.parameters()
        yield from module.buffers()


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of tensors; what shares storage counts once."""
    return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values())


def _evicted(weight: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """What stands for a weight that is not there: of its shape, without its bytes.

    It reads as NaN, where its type has that, so that nobody can take it for the weight.
    """
    nothing = float("nan") if weight.is_floating_point() else 0
    one = torch.full(
        (1,) * weight.ndim, nothing, dtype=weight.dtype, device=device or weight.device
    )
    return one.expand(weight.shape)


def _is_evicted(weight: torch.Tensor) -> bool:
    return weight.untyped_storage().nbytes() == weight.element_size()
