"""Qwen2.5-Omni's codec against transformers', in chunks, in company, and with wrong codes."""

import numpy as np
import pytest
import torch
from transformers import Qwen2_5OmniConfig, Qwen2_5OmniToken2WavModel

from omnistage.runtime.models import codec as codec_module
from omnistage.runtime.models.token2wav import Noise, vocoder_reach
from omnistage.runtime.protocol.errors import InvalidRequest, JobFailed, ModelLoadFailed
from tests.fakes.codecs import BROKEN, Run, assert_close, fill_batches, frame, qwen25_codec

SAMPLES = 480
"""Per code."""


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    return qwen25_codec(tmp_path_factory.mktemp("qwen25"))


@pytest.fixture(scope="module")
def transformers(codec):
    config = Qwen2_5OmniConfig.from_pretrained(codec.folder).token2wav_config
    return Qwen2_5OmniToken2WavModel.from_pretrained(
        codec.folder, config=config, key_mapping={r"^token2wav\.": ""}, dtype=torch.float32
    ).eval()


def reference(codec, transformers, codes, seed, voice="Chelsie", **options):
    """transformers' own sound for the codes; its noise is from torch's generator."""
    speaker = torch.load(codec.folder / "spk_dict.pt", weights_only=True)[voice]
    torch.manual_seed(seed)
    with torch.no_grad():
        waveform = transformers(
            torch.from_numpy(codes)[None], speaker["cond"], speaker["ref_mel"], **options
        )
    return waveform.reshape(-1)


@pytest.mark.parametrize(
    ("count", "voice", "steps", "guidance"),
    [(1, "Chelsie", 10, 0.5), (13, "Ethan", 10, 0.5), (40, "Chelsie", 4, 2.0), (25, "Ethan", 3, 0)],
)
def test_the_whole_equals_transformers(codec, transformers, count, voice, steps, guidance):
    codes = codec.codes(count)
    task = codec.task(
        "a", codes, voice=voice, whole=True, seed=7, steps=steps, guidance=float(guidance)
    )
    options = {"num_steps": steps, "guidance_scale": guidance}
    theirs = reference(codec, transformers, codes, 7, voice, **options)
    assert theirs.shape == (count * SAMPLES,)
    assert_close(codec.run(task).sound("a"), theirs, 1e-4)


def test_a_chunk_alone_is_the_whole_of_its_codes(codec, transformers):
    codes = codec.codes(4)
    run = codec.run(codec.task("a", codes, seed=3, steps=3))
    assert_close(run.sound("a"), reference(codec, transformers, codes, 3, num_steps=3), 1e-4)


def test_parts_join_to_the_whole_and_have_its_length(codec):
    codes = codec.codes(55)
    run = codec.run(
        codec.task("chunks", codes, steps=3), codec.task("whole", codes, steps=3, whole=True)
    )
    assert [len(part) / SAMPLES for part in run.parts("chunks")] == [1, 20, 24, 7, 3]
    assert torch.equal(torch.cat(run.parts("chunks")), run.sound("chunks"))
    assert len(run.sound("chunks")) == len(run.sound("whole")) == 55 * SAMPLES
    assert torch.equal(torch.cat(run.parts("whole")), run.sound("whole"))


def test_chunks_that_see_all_codes_equal_the_whole(codec):
    """A chunk's noise is that of its place in the whole."""
    codes = codec.codes(30)
    run = codec.run(
        codec.task("chunks", codes, steps=3, first_chunk=24, chunk=6),
        codec.task("whole", codes, steps=3, whole=True),
    )
    assert [len(part) / SAMPLES for part in run.parts("chunks")] == [21, 6, 3]
    assert_close(torch.cat(run.parts("chunks")[1:]), run.sound("whole")[21 * SAMPLES :], 1e-4)


@torch.inference_mode()
def test_the_vocoder_needs_the_frames_of_its_reach_and_no_more(codec):
    vocoder = codec.model.modules["vocoder"]
    reach = vocoder_reach(vocoder._bigvgan.config)
    config = codec.checkpoint.index["token2wav_config"]["dit_config"]
    generator = torch.Generator().manual_seed(0)
    frames = torch.randn(1, 4 * reach, config["mel_dim"], generator=generator)
    begin, samples = 2 * reach, SAMPLES // config["repeats"]
    whole = vocoder(frames)[0, begin * samples :]

    def error(before: int) -> float:
        trimmed = vocoder(frames[:, begin - before :])[0, before * samples :]
        return ((trimmed - whole).abs().max() / whole.abs().max()).item()

    assert error(reach) < 1e-5
    assert error(reach // 4) > 1e-5


def test_the_vocoder_is_not_given_what_was_told_before(codec):
    given = []
    hook = codec.model.modules["vocoder"].register_forward_pre_hook(
        lambda _, args, kwargs: given.append((args or tuple(kwargs.values()))[0].shape[1]),
        with_kwargs=True,
    )
    codec.run(codec.task("a", codec.codes(30), steps=3, first_chunk=24, chunk=6))
    hook.remove()
    reach = codec.model.programs["codec_decode"]._codec.reach
    assert given == [2 * 24, 2 * (30 - 21 + reach)]


def test_seams_are_no_worse_than_the_rest(codec):
    codes = codec.codes(80)
    run = codec.run(
        codec.task("chunks", codes, steps=4), codec.task("whole", codes, steps=4, whole=True)
    )
    whole = run.sound("whole")
    error = (run.sound("chunks") - whole).view(-1, SAMPLES).pow(2).mean(1).sqrt()
    relative = error[4:] / whole.pow(2).mean().sqrt()  # the first chunk is made in haste
    assert relative.max() < 0.05
    assert relative.median() < 0.01


@pytest.mark.parametrize(("first", "left"), [(1, 0), (3, 0), (12, 5), (50, 0)])
def test_no_sound_is_lost_with_little_context(codec, first, left):
    codes = codec.codes(50)
    task = codec.task("a", codes, steps=2, first_chunk=first, chunk=1, left_context=left)
    run = codec.run(task)
    assert len(run.sound("a")) == 50 * SAMPLES
    assert all(len(part) for part in run.parts("a"))


@pytest.mark.parametrize("sizes", [[1] * 30, [3, 0, 7, 19, 1], [30]])
def test_codes_that_come_in_parts_give_the_same_sound(codec, sizes):
    codes = codec.codes(30)
    whole = codec.run(codec.task("a", codes, steps=3)).sound("a")
    run = Run(codec)
    run.engine.submit(codec.task("a", steps=3))
    run.finish()
    run.feed("a", np.split(codes, np.cumsum(sizes)[:-1]))
    assert torch.equal(run.sound("a"), whole)
    assert torch.equal(torch.cat(run.parts("a")), whole)


def test_sound_comes_while_codes_still_come(codec):
    run = Run(codec)
    run.engine.submit(codec.task("a", steps=3))
    run.engine.feed("a", "codes", frame(codec.codes(3)))
    run.finish()
    assert run.parts("a") == []
    run.engine.feed("a", "codes", frame(codec.codes(1)))
    run.finish()
    assert [len(part) for part in run.parts("a")] == [
        SAMPLES
    ]  # that of three codes may still change
    assert run.fate("a") == "part"


def test_the_seed_decides(codec):
    codes = codec.codes(5)
    tasks = [codec.task(str(i), codes, steps=3, seed=seed) for i, seed in enumerate((1, 1, 2))]
    torch.manual_seed(5)
    run = codec.run(*tasks)
    assert_close(run.sound("0"), run.sound("1"), 2e-5)
    assert (run.sound("0") - run.sound("2")).abs().max() > 1e-2


def test_noise_is_by_place():
    whole = Noise(11, 2, 80).of(0, 40)
    torch.manual_seed(11)
    assert torch.equal(whole, torch.randn(80, 80))
    late = Noise(11, 2, 80)
    assert torch.equal(late.of(30, 33), whole[60:66])
    assert torch.equal(late.of(12, 40), whole[24:])


def test_voices_differ_and_their_names_have_no_case(codec):
    codes = codec.codes(5)
    names = ("Chelsie", "ETHAN", "ethan")
    run = codec.run(*(codec.task(name, codes, voice=name, steps=3) for name in names))
    assert_close(run.sound("ETHAN"), run.sound("ethan"), 2e-5)
    assert (run.sound("ETHAN") - run.sound("Chelsie")).abs().max() > 1e-3


def test_progress_counts_the_solver_s_steps(codec):
    run = codec.run(codec.task("a", codec.codes(30), steps=3))
    told = [(e.step, e.total) for e in run.events["a"] if e.kind == "progress"]
    assert told == [(i + 1, 6) for i in range(6)]


def test_requests_share_forwards(codec, monkeypatch):
    fill_batches(monkeypatch)
    tasks = [codec.task(str(i), codec.codes(4, seed=i), steps=3) for i in range(4)]
    assert codec.run(*tasks).forwards == codec.run(tasks[0]).forwards == 2 * 4 + 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_talker_that_said_nothing_is_told(codec, whole):
    error = codec.run(codec.task("a", codec.codes(0), whole=whole)).error("a")
    assert isinstance(error, JobFailed)
    assert "said nothing" in error.message
    run = Run(codec)
    run.engine.submit(codec.task("b", whole=whole))
    assert "said nothing" in run.feed("b", []).error("b").message


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (np.array([1, 2, 999]), "999 is no code"),
        (np.array([-1]), "-1 is no code"),
        (np.array([[1, 2]]), "shape [n]"),
        (np.array(3), "shape [n]"),
        (np.array([1.0]), "int64"),
    ],
)
def test_wrong_codes_are_refused(codec, codes, words):
    error = codec.run(codec.task("a", codes)).error("a")
    assert isinstance(error, InvalidRequest)
    assert words in error.message
    assert error.field == "codes"


def test_the_last_code_of_the_table_is_one(codec):
    count = codec.checkpoint.index["token2wav_config"]["dit_config"]["num_embeds"]
    run = codec.run(codec.task("a", np.array([0, count]), steps=2))
    assert run.fate("a") == "done"
    assert codec.run(codec.task("a", np.array([count + 1]))).fate("a") == "failed"


def test_an_unknown_voice_is_refused_with_the_list(codec):
    error = codec.run(codec.task("a", codec.codes(5), voice="Nobody")).error("a")
    assert isinstance(error, InvalidRequest)
    assert error.field == "voice"
    assert "chelsie, ethan" in error.allowed


def test_too_many_codes_for_one_piece_are_refused(codec):
    error = codec.run(codec.task("a", codec.codes(2049), whole=True)).error("a")
    assert isinstance(error, InvalidRequest)
    assert (error.field, error.value) == ("whole", 2049)


def test_sound_that_is_no_number_fails(codec):
    error = codec.run(codec.task("a", codec.codes(5), voice=BROKEN, steps=2)).error("a")
    assert isinstance(error, JobFailed)
    assert "not finite" in error.message


def test_weights_stay_in_float32(codec):
    model = codec_module.load(codec.checkpoint, dtype="bfloat16", device="cpu")
    dtypes = {p.dtype for module in model.modules.values() for p in module.parameters()}
    assert dtypes == {torch.float32}


def test_only_the_codec_is_loaded(codec):
    names = {n for module in codec.model.modules.values() for n, _ in module.named_parameters()}
    assert names
    assert all(name.startswith(("_dit.", "_bigvgan.")) for name in names)


@pytest.fixture
def broken_folder(codec, tmp_path):
    for path in codec.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_corrupt_list_of_voices_is_told(codec, broken_folder):
    (broken_folder / "spk_dict.pt").write_bytes(b"no pickle")
    checkpoint = type(codec.checkpoint)(
        broken_folder, codec.checkpoint.family, codec.checkpoint.index, {}
    )
    with pytest.raises(ModelLoadFailed, match=r"spk_dict\.pt"):
        codec_module.load(checkpoint, dtype="float32", device="cpu")


def test_a_missing_weight_is_told(codec, broken_folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(broken_folder / "model.safetensors")
    name = "token2wav.code2wav_dit_model.proj_out.bias"
    del weights[name]
    save_file(weights, broken_folder / "model.safetensors", metadata={"format": "pt"})
    checkpoint = type(codec.checkpoint)(
        broken_folder, codec.checkpoint.family, codec.checkpoint.index, {}
    )
    with pytest.raises(ModelLoadFailed, match=name):
        codec_module.load(checkpoint, dtype="float32", device="cpu")
