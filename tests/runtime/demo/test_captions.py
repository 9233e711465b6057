"""The grammar: varied, and split without overlap."""

import random

from omnistage.runtime.demo.captions import (
    COLOURS,
    SHAPES,
    held_out_request,
    is_held_out,
    is_held_out_combination,
    training_request,
    vocabulary,
)


def _combination(request):
    scene = request.scene
    return scene.shape, scene.colour, scene.background


def test_training_and_held_out_share_no_sentence():
    rng = random.Random(0)
    trained = {training_request(rng).text for _ in range(4000)}
    held_out = {held_out_request(rng).text for _ in range(1000)}
    assert not trained & held_out


def test_held_out_combinations_are_never_trained():
    rng = random.Random(1)
    trained = {_combination(training_request(rng)) for _ in range(20000)}
    held_out = {
        _combination(request)
        for request in (held_out_request(rng) for _ in range(2000))
        if is_held_out_combination(request.scene)
    }
    assert len(held_out) > 20
    assert not trained & held_out


def test_split_is_a_function_of_the_request():
    rng = random.Random(2)
    assert all(is_held_out(held_out_request(rng)) for _ in range(200))
    assert not any(is_held_out(training_request(rng)) for _ in range(200))


def test_same_seed_same_requests():
    first, second = random.Random(3), random.Random(3)
    assert [training_request(first) for _ in range(50)] == [
        training_request(second) for _ in range(50)
    ]


def test_one_scene_has_many_wordings():
    rng = random.Random(4)
    texts = {held_out_request(rng).text.lower() for _ in range(400)}
    assert len(texts) > 380
    assert {text.split()[0] for text in texts} >= {"a", "two", "draw", "on"}


def test_vocabulary_has_every_colour_and_shape():
    words = vocabulary()
    assert {*COLOURS, *SHAPES, *(shape + "s" for shape in SHAPES)} <= set(words)
    assert len(words) == len(set(words))
