"""Speech alone, together, staggered, and beside neighbours that fail or are stopped."""

import pytest
import torch

from tests.fakes.codecs import BROKEN, Run, assert_close, fill_batches, qwen3_codec, qwen25_codec

from .harness import TOLERANCE

FAMILIES = {"qwen2.5-omni": qwen25_codec, "qwen3-omni": qwen3_codec}
LENGTHS = (40, 27, 40, 4, 33, 40, 1, 27)
VOICES = ("Chelsie", "Ethan")


@pytest.fixture(scope="module", params=FAMILIES)
def codec(request, tmp_path_factory):
    return FAMILIES[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(autouse=True)
def full_batches(monkeypatch):
    fill_batches(monkeypatch)


def task(codec, name, codes=None, **params):
    """A task of few steps, where there are any."""
    few = {"steps": 3} if "steps" in codec.stage.params.model_fields else {}
    return codec.task(name, codes, **few, **params)


@pytest.fixture(scope="module")
def tasks(codec):
    """Requests of both voices, of several lengths, some in one piece."""
    return [
        task(codec, str(i), codec.codes(n, i), voice=VOICES[i % 2], seed=i, whole=i in (2, 4))
        for i, n in enumerate(LENGTHS)
    ]


@pytest.fixture(scope="module")
def alone(codec, tasks):
    """Each request in an engine that has nothing else to do."""
    return [codec.run(task) for task in tasks]


def assert_as_alone(run, tasks, alone):
    for each, own in zip(tasks, alone, strict=True):
        assert_close(run.sound(each.id), own.sound(each.id), TOLERANCE)
        assert len(run.parts(each.id)) == len(own.parts(each.id))


@pytest.mark.parametrize("settings", [{}, {"mode": "single"}, {"policy": "fair"}])
def test_together(codec, tasks, alone, settings):
    run = codec.run(*tasks, **settings)
    assert_as_alone(run, tasks, alone)
    one_by_one = sum(own.forwards for own in alone)
    if settings.get("mode") == "single":
        assert run.forwards == one_by_one
    else:
        assert run.forwards <= one_by_one / 2


def test_staggered(codec, tasks, alone):
    run = Run(codec)
    for each in tasks:
        run.engine.submit(each)
        for _ in range(5):
            run.step()
    assert_as_alone(run.finish(), tasks, alone)


def test_beside_a_neighbour_that_is_stopped(codec, tasks, alone):
    run = Run(codec)
    for each in (*tasks, task(codec, "stopped", codec.codes(40, 99))):
        run.engine.submit(each)
    while not run.parts("stopped"):
        run.step()
    run.engine.cancel("stopped")
    assert_as_alone(run.finish(), tasks, alone)
    assert run.fate("stopped") == "cancelled"


def test_beside_a_neighbour_whose_codes_are_wrong_midway(codec, tasks, alone):
    run = Run(codec)
    for each in (*tasks, task(codec, "wrong")):
        run.engine.submit(each)
    run.step()
    run.feed("wrong", [codec.codes(10), codec.codes(10) - 1000])
    assert_as_alone(run, tasks, alone)
    assert run.fate("wrong") == "failed"
    assert run.parts("wrong")


@pytest.mark.parametrize("codec", ["qwen2.5-omni"], indirect=True)
@pytest.mark.parametrize("raises", [False, True])
def test_beside_a_neighbour_whose_sound_is_broken(codec, tasks, alone, raises):
    """Its numbers are NaN; or its forward fails, and so does each forward it is merged into."""

    def refuse_nan(module, args, arguments):
        if raises and arguments["speaker_embedding"].isnan().any():
            raise RuntimeError("a row is broken")

    dit = codec.model.modules["dit"]
    hook = dit.register_forward_pre_hook(refuse_nan, with_kwargs=True)
    broken = task(codec, "broken", codec.codes(40, 99), voice=BROKEN)
    run = codec.run(*tasks, broken)
    hook.remove()
    assert_as_alone(run, tasks, alone)
    assert run.fate("broken") == "failed"
    assert ("a row is broken" in run.error("broken").message) == raises


@pytest.mark.parametrize("codec", ["qwen2.5-omni"], indirect=True)
def test_two_voices_at_once_never_mix(codec):
    codes = codec.codes(30)
    one, other = (task(codec, voice, codes, voice=voice) for voice in VOICES)
    run = codec.run(one, other)
    assert run.forwards == codec.run(one).forwards
    for each in (one, other):
        assert_close(run.sound(each.id), codec.run(each).sound(each.id), TOLERANCE)
    assert not torch.allclose(run.sound(one.id), run.sound(other.id), atol=1e-3)
