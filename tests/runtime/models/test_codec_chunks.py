"""Where speech is cut."""

import itertools

import pytest

from omnistage.runtime.models.chunks import Chunking, Window

PLAIN = Chunking(4, 25, 25)
BLOCKS = Chunking(4, 25, 25, block=12)


def test_first_a_short_chunk_then_longer_ones_then_the_rest():
    assert list(PLAIN.windows([60])) == [
        Window(0, 0, 4),
        Window(0, 4, 29),
        Window(4, 29, 54),
        Window(29, 54, 60),
    ]


def test_chunks_begin_and_end_where_blocks_do():
    assert list(BLOCKS.windows([80])) == [
        Window(0, 0, 4),
        Window(0, 4, 24),
        Window(0, 24, 48),
        Window(24, 48, 72),
        Window(48, 72, 80),
    ]


@pytest.mark.parametrize("chunking", [PLAIN, BLOCKS, Chunking(30, 1, 0, 12), Chunking(1, 1, 0)])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 24, 29, 100])
def test_chunks_join_and_do_not_depend_on_how_codes_come(chunking, count):
    at_once = list(chunking.windows([count]))
    one_by_one = list(chunking.windows(range(count + 1)))
    assert one_by_one == at_once
    edges = [0, *(w.end for w in at_once)]
    assert [w.begin for w in at_once] == edges[:-1]
    assert edges[-1] == count
    assert all(w.start <= w.begin < w.end for w in at_once)


@pytest.mark.parametrize("chunking", [PLAIN, BLOCKS])
def test_a_chunk_waits_for_its_own_codes_only(chunking):
    there = []

    def arrivals():
        for count in range(1, 100):
            there.append(count)
            yield count

    ends = []
    for window in chunking.windows(arrivals()):
        assert window.end == there[-1]
        ends.append(window.end)
    waits = [end - before for before, end in itertools.pairwise([0, *ends])]
    assert waits[0] == chunking.first
    assert max(waits[1:]) <= chunking.chunk


def test_later_chunks_all_have_one_size_so_that_requests_share_forwards():
    for chunking in (PLAIN, BLOCKS):
        sizes = [w.end - w.start for w in chunking.windows([400])]
        assert len(set(sizes[3:-1])) == 1
