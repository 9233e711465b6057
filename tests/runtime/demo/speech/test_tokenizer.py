"""The tokenizer reads figures one by one, knows its words and lays out a chat."""

from omnistage.runtime.demo.speech.tokenizer import UNKNOWN, build_tokenizer
from omnistage.runtime.demo.speech.vocabulary import WORDS


def test_figures_are_read_as_words_and_signs_not_at_all():
    tokenizer = build_tokenizer()
    assert tokenizer.tokenize("Say 314, please!") == ["say", "three", "one", "four", "please"]
    assert tokenizer("3 1 4").input_ids == tokenizer("three, one; four").input_ids


def test_spoken_words_are_one_token_each_and_come_back_as_text():
    tokenizer = build_tokenizer()
    ids = tokenizer(" ".join(WORDS), add_special_tokens=False).input_ids
    assert len(ids) == len(WORDS)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == " ".join(WORDS)


def test_other_words_are_unknown():
    assert build_tokenizer().tokenize("quokka") == [UNKNOWN]


def test_chat_template_takes_text_and_parts():
    tokenizer = build_tokenizer()
    plain = [{"role": "user", "content": "say 3"}]
    parts = [{"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "say 3"}]}]
    shown = [
        tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        for turns in (plain, parts)
    ]
    assert shown[0] == "<|im_start|>user\nsay 3<|im_end|>\n<|im_start|>assistant\n"
    assert shown[1] == shown[0].replace("say", "<|audio_bos|><|AUDIO|><|audio_eos|>say")
