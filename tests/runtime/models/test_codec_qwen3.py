"""Qwen3-Omni's codec against transformers', in chunks, and with wrong codes."""

import numpy as np
import pytest
import torch
from transformers import Qwen3OmniMoeCode2Wav, Qwen3OmniMoeConfig

from omnistage.runtime.protocol.errors import InvalidRequest, JobFailed
from tests.fakes.codecs import Run, assert_close, fill_batches, qwen3_codec

SAMPLES, LAG = 1920, 555
"""Samples per frame, and how many fewer the last frame has."""


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    return qwen3_codec(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def transformers(codec):
    config = Qwen3OmniMoeConfig.from_pretrained(codec.folder).code2wav_config
    return Qwen3OmniMoeCode2Wav.from_pretrained(
        codec.folder, config=config, key_mapping={r"^code2wav\.": ""}, dtype=torch.float32
    ).eval()


def reference(transformers, codes, **options):
    with torch.no_grad():
        rows = torch.from_numpy(codes).T[None]
        return transformers.chunked_decode(rows, **options).reshape(-1)


@pytest.mark.parametrize("count", [1, 40, 310])
def test_the_whole_equals_transformers(codec, transformers, count):
    codes = codec.codes(count)
    theirs = reference(transformers, codes)
    run = codec.run(codec.task("a", codes, whole=True))
    assert_close(run.sound("a"), theirs, 1e-4)


def test_chunks_equal_transformers_chunks_but_for_what_those_leave_out(codec, transformers):
    codes = codec.codes(60)
    run = codec.run(codec.task("a", codes, first_chunk=25, chunk=25))
    with_gaps = reference(transformers, codes, chunk_size=25).split(25 * SAMPLES - LAG)
    ours = run.sound("a")
    assert len(ours) == 60 * SAMPLES - LAG
    for number, theirs in enumerate(with_gaps):
        first = number * 25 * SAMPLES
        assert_close(ours[first : first + len(theirs)], theirs, 1e-4)


def test_chunks_join_to_the_length_of_the_whole_and_equal_it_away_from_seams(codec):
    codes = codec.codes(60)
    run = codec.run(codec.task("chunks", codes), codec.task("whole", codes, whole=True))
    parts = run.parts("chunks")
    assert len(parts) == 4
    assert len(parts[0]) == 4 * SAMPLES - LAG
    assert torch.equal(torch.cat(parts), run.sound("chunks"))
    assert_close(run.sound("chunks"), run.sound("whole"), 1e-4)  # the context is all it can see


@pytest.mark.parametrize("left", [0, 1])
def test_without_context_no_sound_is_lost(codec, left):
    run = codec.run(codec.task("a", codec.codes(40), left_context=left))
    assert len(run.sound("a")) == 40 * SAMPLES - LAG


@pytest.mark.parametrize("sizes", [[1] * 31, [3, 0, 7, 20, 1]])
def test_codes_that_come_in_parts_give_the_same_sound(codec, sizes):
    codes = codec.codes(31)
    whole = codec.run(codec.task("a", codes)).sound("a")
    run = Run(codec)
    run.engine.submit(codec.task("a"))
    run.finish()
    run.feed("a", np.split(codes, np.cumsum(sizes)[:-1]))
    assert torch.equal(run.sound("a"), whole)
    assert torch.equal(torch.cat(run.parts("a")), whole)


def test_progress_counts_chunks(codec):
    run = codec.run(codec.task("a", codec.codes(40)))
    told = [(e.step, e.total) for e in run.events["a"] if e.kind == "progress"]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_requests_share_forwards_and_get_what_they_get_alone(codec, monkeypatch):
    fill_batches(monkeypatch)
    tasks = [codec.task(str(i), codec.codes(40, seed=i)) for i in range(8)]
    together = codec.run(*tasks)
    alone = [codec.run(task) for task in tasks]
    assert together.forwards == alone[0].forwards == 3
    for task, run in zip(tasks, alone, strict=True):
        assert_close(together.sound(task.id), run.sound(task.id), 2e-5)


def test_wrong_codes_fail_their_own_request_only(codec):
    codes = codec.codes(5)
    good = codec.task("good", codes)
    run = codec.run(
        good,
        codec.task("flat", codes[:, 0]),
        codec.task("groups", codes[:, :-1]),
        codec.task("range", codes + 1000),
        codec.task("empty", codes[:0]),
    )
    for name in ("flat", "groups", "range"):
        assert isinstance(run.error(name), InvalidRequest)
        assert run.error(name).field == "codes"
    assert isinstance(run.error("empty"), JobFailed)
    assert torch.equal(run.sound("good"), codec.run(good).sound("good"))
