# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of tokens that come one by one: it is that of all tokens at once; strings that end it are found wherever
tokens begin, and nothing that they take away was shown before."""

import random

import attn
import pytest
from attn.generation import answer_text
from spelling import Sentences, Speller


class Bytes(Speller):
    """A token for each byte."""

    def word(self, token):
        return bytes([token])


def shown(text, tokens, **options):
    """Add tokens. Return the texts that were written after each, and whether a string ended it."""
    told = []
    for token in tokens:
        stopped = text.add(token, **options)
        if stopped:
            break
        told.append(text.written(False))
    text.finish()
    return told, text.written(True)


def test_random_texts():
    """Outputs grow, and together are the text; without stop strings it is that of all tokens."""
    chance = random.Random(0)
    for _ in range(200):
        tokens = [chance.randrange(2, 97) for _ in range(chance.randrange(1, 40))]
        told, whole = shown(answer_text.AnswerText(Speller(), [5, 6]), tokens)
        assert whole == Speller().decode(tokens, True, False)
        for one, other in zip(["", *told], [*told, whole], strict=True):
            assert other.startswith(one)


def test_characters_of_several_tokens():
    text = answer_text.AnswerText(Bytes(), b"is ")
    told, whole = shown(text, "aé🦊b".encode())
    assert told == ["a", "a", "aé", "aé", "aé", "aé", "aé🦊", "aé🦊b"] and whole == "aé🦊b"
    cut = answer_text.AnswerText(Bytes(), b"")
    assert shown(cut, "aé".encode()[:2]) == (["a", "a"], "a\ufffd"), "no more tokens follow"
    begun = answer_text.AnswerText(Bytes(), "é".encode()[:1])
    assert shown(begun, "éa".encode()[1:])[1] == "éa", "the prompt ended within a character"
    none = answer_text.AnswerText(Bytes(), b"")
    assert shown(none, [0xFF] * 20)[1] == "\ufffd" * 20
    assert len(shown(none, [0xFF] * 20)[0][-1]) > 20, "it is not kept back for ever"


def test_words_that_begin_with_a_space():
    """A token alone has no space before it, behind others it does, special ones between them too."""
    text = answer_text.AnswerText(Sentences(), [1])
    assert shown(text, [2, 3, 0, 0, 4])[0] == [" cat", " cats", " cats", " cats", " cats sat"]


def test_the_cost_of_a_token():
    """A token is decoded with few before it, however long the answer is."""
    speller = Speller()
    text = answer_text.AnswerText(speller, [3] * 1000)
    for token in range(3, 90):
        text.add(token)
    assert speller.decoded < 87 * 6 + 10


def test_stop_strings_across_tokens():
    for stops, include, whole in (
        (("cd",), False, "ab"),
        (("cd",), True, "abcd"),
        (("e", "cd"), False, "ab"),
        (("zz",), False, "abcdef"),
        (("ab",), False, ""),
    ):
        text = answer_text.AnswerText(Bytes(), b"", stops, include)
        assert shown(text, b"abcdef")[1] == whole
        assert text.stop == {"ab": "cd", "abcd": "cd", "": "ab"}.get(whole)
    pairs = answer_text.AnswerText(Sentences(), [1], ("s sat",))
    assert shown(pairs, [2, 3, 4, 5]) == ([" cat", " cat"], " cat")


def test_an_end_that_may_begin_a_stop_string_is_kept_back():
    text = answer_text.AnswerText(Bytes(), b"", ("\n\nUser:", "END"))
    told, whole = shown(text, b"a\n\nUse\nEN\n\nUser: b")
    assert told[:4] == ["a", "a", "a", "a"] and told[6] == "a\n\nUse" and whole == "a\n\nUse\nEN"
    assert all(whole.startswith(each) for each in told)


def test_the_first_of_several_stop_strings():
    """In a token that has two of them, the one that begins first ends the text."""
    text = answer_text.AnswerText(Sentences(), [1], ("t", "ca"))
    assert text.add(2) and text.stop == "ca" and text.written(True) == " "


def test_no_stop_string_counts_before_it_may():
    text = answer_text.AnswerText(Bytes(), b"", ("ab",))
    for token in b"abab":
        assert not text.add(token, stops=False)
    assert not text.add(ord("a")) and text.add(ord("b"))
    assert text.written(True) == "abab"


def test_random_stop_strings():
    """Against a search in the whole text: the first place at which a string is complete."""
    chance = random.Random(1)
    for _ in range(500):
        tokens = [chance.choice(b"ab") for _ in range(12)]
        stops = tuple("".join(chance.choice("ab") for _ in range(chance.randrange(2, 5))) for _ in range(2))
        told, whole = shown(answer_text.AnswerText(Bytes(), b"", stops), tokens)
        text = bytes(tokens).decode()
        ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
        if not ends:
            assert whole == text
            continue
        first = min(text.find(stop) for stop in stops if text[: min(ends)].endswith(stop))
        assert whole == text[:first] and all(whole.startswith(each) for each in told)


def test_what_cannot_be_decoded_changes_nothing():
    class Fails(Bytes):
        fails = False

        def decode(self, *given, **options):
            if self.fails:
                raise ValueError("no")
            return super().decode(*given, **options)

    tokenizer = Fails()
    text = answer_text.AnswerText(tokenizer, b"", ("xyz",))
    text.add(ord("a"))
    tokenizer.fails = True
    with pytest.raises(ValueError, match="no"):
        text.add(ord("b"))
    tokenizer.fails = False
    assert shown(text, b"bc")[1] == "abc"


def test_stop_strings_that_are_refused():
    stops = answer_text.stop_strings
    assert stops(None, None) == () and stops([], None) == () and stops("a", 1) == ("a",)
    assert stops(["a", "b"], 1) == ("a", "b")
    for given, told in (
        (3, "stop: expected a string, or several, got 3"),
        (["a", 3], "stop: expected a string, or several"),
        (["a", ""], "stop: expected strings of one character or more"),
    ):
        with pytest.raises(attn.PlanError, match=told):
            stops(given, 1)
    with pytest.raises(attn.PlanError, match=r"tokenizer: expected a tokenizer.* Engine\(\.\.\., tokenizer"):
        stops("a", None)
    answer_text.check_tokenizer(Bytes())
    with pytest.raises(
        attn.PlanError, match="tokenizer: expected a tokenizer of Transformers, or None, got 'gpt2'"
    ):
        answer_text.check_tokenizer("gpt2")
