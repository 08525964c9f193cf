# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A tokenizer for the tokens of tiny models: a token is one byte or several, so that a character may need two tokens."""

SPECIAL = 2


class Speller:
    """Decodes as tokenizers of Transformers do. Tokens from 3 on are letters, pairs of letters, or bytes of letters that
    are no ASCII; token 2 is special."""

    def __init__(self):
        self.decoded = 0
        """Tokens that went through `decode`."""

    def word(self, token):
        if token < 3:
            return b""
        if token % 5 == 4:
            return bytes("äöüßéèñçåø"[token // 5 % 10], "utf-8")[token // 50 % 2 :][:1]
        return bytes([97 + token % 26]) if token % 2 else bytes([97 + token % 26, 97 + token // 26])

    def decode(self, token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=None):
        assert clean_up_tokenization_spaces is False
        self.decoded += len(token_ids)
        words = [
            b"<end>" if token == SPECIAL and not skip_special_tokens else self.word(token)
            for token in token_ids
        ]
        return b"".join(words).decode("utf-8", "replace")


class Sentences:
    """Decodes as SentencePiece does: words begin with a space, and a text does not."""

    WORDS = ("", "▁the", "▁cat", "s", "▁sat", "▁on")

    def decode(self, token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=None):
        return "".join(self.WORDS[token] for token in token_ids).replace("▁", " ").removeprefix(" ")
