import numpy as np

from omnistage.runtime.bench.ar import speed_row
from omnistage.runtime.bench.residency import Moment, row
from omnistage.runtime.bench.speech import equal, soonest
from omnistage.runtime.bench.speeches import Speech


def test_speed_counts_tokens_and_equal_answers():
    ours = (2.0, [[1, 2, 3], [4, 5]])
    theirs = (6.0, [[1, 2, 3], [4, 6, 7]])
    made = speed_row("chats", ours, "other", theirs)
    assert (made.ours_s, made.baseline_s) == (400.0, 1000.0)
    assert made.counters == {
        "equal": 1,
        "of": 2,
        "tokens_per_s": 2.5,
        "baseline_tokens_per_s": 1.0,
    }


def test_residency_sets_memory_and_answers_beside_the_baselines():
    ours = Moment(2.0, {"server": 10.4, "all": 30.6}, [[1], [2]])
    made = row("loaded", ours, "vLLM", Moment(4.0, {"all": 20.0}, [[1], [3]]))
    assert made.ratio == 2.0
    assert made.counters == {
        "server_mb": 10,
        "all_mb": 31,
        "baseline_mb": 20,
        "equal": 1,
        "of": 2,
    }


def test_what_is_no_answer_has_none_to_compare():
    made = row("unloading", Moment(0.5, {"all": 20.0, "freed": 10.0}), "end", Moment(1.0))
    assert made.counters == {"all_mb": 20, "freed_mb": 10}


def test_speeches_are_equal_where_length_and_sound_are():
    sound = np.linspace(-1, 1, 100, dtype=np.float32)
    ours = [Speech(sound, 0.1, 0.2)] * 3
    others = [sound + np.float32(1e-5), sound[:-1], -sound]
    assert equal(ours, [Speech(other, 0.1, 0.2) for other in others]) == 1


def test_of_several_runs_the_one_that_ended_soonest_counts():
    ends_s = iter([3.0, 9.0, 2.0, 8.0, 4.0, 7.0])

    def work():
        return [Speech(np.zeros(1, np.float32), 0.1, next(ends_s))]

    assert [speech.last_s for speech in soonest(3, work, work)] == [2.0, 7.0]
