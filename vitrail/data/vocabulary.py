"""From text to tokens and back: characters, or pieces of words that were learned (byte-pair encoding)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from vitrail.errors import InputError
from vitrail.files import whole

SPECIAL = ("<pad>", "<begin>", "<end>", "<unknown>", "<mask>")
PAD, BEGIN, END, UNKNOWN, MASK = range(len(SPECIAL))
Kind = Literal["bpe", "characters"]
LEAST = 2  # times that a character is seen, to have a token of its own


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens by their numbers. A sentence is its tokens and then END; BEGIN and PAD are put where they are needed."""

    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        self.tokenizer.encode_special_tokens = True  # <end> in a text is no end

    def __reduce__(self) -> Any:
        return _from_text, (self.tokenizer.to_str(),)

    @classmethod
    def learned(cls, sentences: Iterable[str], kind: Kind, size: int) -> "Vocabulary":
        """From sentences: their characters, or so many pieces of bytes, of which any text can be made."""
        if size <= len(SPECIAL):
            raise InputError(f"a vocabulary of {size} tokens has room for no word; choose a larger data.vocabulary.")
        special = [AddedToken(name, special=True) for name in SPECIAL]
        if kind == "characters":
            tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL[UNKNOWN]))
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
            tokenizer.decoder = decoders.Fuse()
            trainer: Any = trainers.WordLevelTrainer(
                vocab_size=size, min_frequency=LEAST, special_tokens=special, show_progress=False
            )
        else:
            tokenizer = Tokenizer(models.BPE())
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
            tokenizer.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(
                vocab_size=size,
                special_tokens=special,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                show_progress=False,
            )
        tokenizer.normalizer = normalizers.NFC()
        end = (SPECIAL[END], END)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
        tokenizer.train_from_iterator(sentences, trainer)
        return cls(tokenizer)

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """What ``write`` wrote."""
        try:
            tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # noqa: BLE001  # the library raises Exception itself
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{str(path)!r} is no tokenizer ({reason}); take it from the run again.") from None
        if [tokenizer.id_to_token(number) for number in range(len(SPECIAL))] != list(SPECIAL):
            raise InputError(
                f"{str(path)!r} is a tokenizer of another kind, in which {SPECIAL[PAD]} and others are not where they "
                f"are in those of runs; vt.load takes its model, which gets tokens by their numbers."
            )
        return cls(tokenizer)

    def write(self, path: Path) -> None:
        with whole(path) as aside:
            aside.write_text(json.dumps(json.loads(self.tokenizer.to_str()), ensure_ascii=False), encoding="utf-8")

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The tokens of each sentence, END last."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(sentences))]

    def decode(self, tokens: Iterable[Sequence[int]]) -> list[str]:
        """The text of each, up to its END."""
        cut = [list(one)[: _end(one)] for one in tokens]
        return [text.strip() for text in self.tokenizer.decode_batch(cut, skip_special_tokens=True)]

    def names(self) -> list[str]:
        """What each token of the vocabulary stands for, as text."""
        words = [self.tokenizer.id_to_token(number) or "" for number in range(len(self))]
        if not isinstance(self.tokenizer.model, models.BPE):
            return words
        return [
            word if number < len(SPECIAL) else self.tokenizer.decoder.decode([word])
            for number, word in enumerate(words)
        ]

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """The characters of sentences that have no token, in the order they are met."""
        if self.tokenizer.token_to_id(SPECIAL[UNKNOWN]) != UNKNOWN or isinstance(self.tokenizer.model, models.BPE):
            return []
        found: dict[str, None] = {}
        for sentence in dict.fromkeys(sentences):
            text = self.tokenizer.normalizer.normalize_str(sentence)
            found |= dict.fromkeys(one for one in text if self.tokenizer.token_to_id(one) is None)
        return list(found)


def _from_text(text: str) -> Vocabulary:
    return Vocabulary(Tokenizer.from_str(text))


def _end(tokens: Sequence[int]) -> int:
    return next((place for place, token in enumerate(tokens) if token == END), len(tokens))
