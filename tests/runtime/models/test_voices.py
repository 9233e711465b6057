import pickle
import zipfile

import pytest
import torch

from omnistage.runtime.models.voices import SPEAKERS, voices_of
from omnistage.runtime.protocol.errors import ModelLoadFailed


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def archive(folder, data):
    with zipfile.ZipFile(folder / SPEAKERS, "w") as file:
        file.writestr("spk/data.pkl", data)


def test_they_are_read_from_what_torch_saved_the_usual_one_first(tmp_path):
    facts = {"bos_token": 1, "cond": torch.ones(1, 4)}
    torch.save({"Bob": facts, "Chelsie": facts, "Ada": facts}, tmp_path / SPEAKERS)
    assert voices_of({}, tmp_path) == ("chelsie", "ada", "bob")


def test_a_config_may_name_them(tmp_path):
    assert voices_of({"talker_config": {"speaker_id": {"Ethan": 3}}}, tmp_path) == ("ethan",)


def test_without_any_it_cannot_speak(tmp_path):
    assert voices_of({}, tmp_path) == ()


def test_nothing_in_the_file_is_run(tmp_path):
    archive(tmp_path, pickle.dumps({"Ada": Bomb(tmp_path / "harm")}))
    assert voices_of({}, tmp_path) == ("ada",)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "data", [b"", b".", b"no pickle", b"a.", b"h\x05.", pickle.dumps(7), pickle.dumps({1: 2})[:-3]]
)
def test_a_broken_file_is_named(tmp_path, data):
    archive(tmp_path, data)
    with pytest.raises(ModelLoadFailed, match=SPEAKERS):
        voices_of({}, tmp_path)


def test_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / SPEAKERS).write_bytes(b"no archive")
    with pytest.raises(ModelLoadFailed, match=SPEAKERS):
        voices_of({}, tmp_path)
