"""From text to tokens and back: characters, or pieces of words that were learned (byte-pair encoding)."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from vitrail.errors import InputError
from vitrail.files import whole

SPECIAL = ("<pad>", "<begin>", "<end>", "<unknown>", "<mask>")
PAD, BEGIN, END, UNKNOWN, MASK = range(len(SPECIAL))
Kind = Literal["bpe", "characters"]
PART, SIDE_BY_SIDE = 100_000, 16  # characters of a text that are tokenised together, at least; and how many such parts
LEAST = 2  # times that a character is seen, to have a token of its own
ROLES = {  # tokens that stand for no word, by the names that they have here and elsewhere
    "pad": (SPECIAL[PAD], "[PAD]", "<|pad|>"),
    "begin": (SPECIAL[BEGIN], "[CLS]", "<s>", "<|startoftext|>"),
    "end": (SPECIAL[END], "[SEP]", "</s>", "<|endoftext|>", "<|end_of_text|>"),
    "unknown": (SPECIAL[UNKNOWN], "[UNK]", "<unk>"),
    "mask": (SPECIAL[MASK], "[MASK]"),
}


@dataclass(frozen=True)
class Pieces:
    """A text as tokens without special ones, where each of them stands in it, and of which word each is a piece."""

    tokens: list[int]
    spans: list[tuple[int, int]]
    words: list[int | None]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens by their numbers. A sentence is its tokens and then END; BEGIN and PAD are put where they are needed."""

    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        self.tokenizer.encode_special_tokens = True  # <end> in a text is no end
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def __reduce__(self) -> Any:
        return _from_text, (self.tokenizer.to_str(),)

    @classmethod
    def learned(cls, sentences: Iterable[str], kind: Kind, size: int, *, words: bool = True) -> "Vocabulary":
        """From sentences: their characters, or so many pieces of bytes, of which any text can be made.

        Each sentence begins with a word, as if a space stood before it; unless it is a part of a text.
        """
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
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=words)
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
        tokenizer = _opened(path)
        if [tokenizer.id_to_token(number) for number in range(len(SPECIAL))] != list(SPECIAL):
            raise InputError(
                f"{str(path)!r} is a tokenizer of another kind, in which {SPECIAL[PAD]} and others are not where they "
                f"are in those of runs; vt.load takes its model, which gets tokens by their numbers."
            )
        return cls(tokenizer)

    @classmethod
    def beside(cls, location: Path) -> "Vocabulary":
        """The one that stands beside weights, of a run or of another library: tokenizer.json, vocab.txt, or vocab.json
        with merges.txt.
        """
        folder = location if location.is_dir() else location.parent
        whole_one, pieces = folder / "tokenizer.json", folder / "vocab.txt"
        merges = folder / "vocab.json", folder / "merges.txt"
        if whole_one.is_file():
            return cls(_opened(whole_one))
        try:
            if pieces.is_file():
                return cls(_word_pieces(pieces))
            if all(file.is_file() for file in merges):
                tokenizer = Tokenizer(models.BPE.from_file(*map(str, merges)))
                tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
                tokenizer.decoder = decoders.ByteLevel()
                return cls(tokenizer)
        except Exception as error:  # noqa: BLE001  # the library raises Exception itself
            raise InputError(f"the tokenizer in {str(folder)!r} cannot be read ({error}); take it again.") from None
        raise InputError(f"{str(folder)!r} holds no tokenizer, without which no text can be read; take the whole run.")

    def write(self, path: Path) -> None:
        with whole(path) as aside:
            aside.write_text(json.dumps(json.loads(self.tokenizer.to_str()), ensure_ascii=False), encoding="utf-8")

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    @property
    def in_pieces(self) -> bool:
        """Whether words are cut in pieces of bytes, of which a space may be the first."""
        return isinstance(self.tokenizer.model, models.BPE)

    def role(self, name: str) -> int | None:
        """The token that stands for the padding, a beginning, an end, what is not known, or what is masked."""
        ids = (self.tokenizer.token_to_id(one) for one in ROLES[name])
        return next((token for token in ids if token is not None), None)

    def needed(self, name: str) -> int:
        """The same, where it has to be there."""
        token = self.role(name)
        if token is None:
            raise InputError(f"the tokenizer has no token for the {name}, such as {ROLES[name][1]}; choose another.")
        return token

    def pieces(self, texts: Sequence[str] | Sequence[Sequence[str]], *, split: bool = False) -> list[Pieces]:
        """Texts as tokens, without special ones; or sentences that come as words."""
        every = self.tokenizer.encode_batch(list(texts), is_pretokenized=split, add_special_tokens=False)
        return [Pieces(one.ids, one.offsets, one.word_ids) for one in every]

    def running(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """A text, which may be long, as tokens without special ones."""
        waiting, pieces = _parts(text), [np.zeros(0, dtype=np.int32)]
        while parts := list(islice(waiting, SIDE_BY_SIDE)):
            every = self.tokenizer.encode_batch_fast(parts, add_special_tokens=False)
            pieces += [np.array(one.ids, dtype=np.int32) for one in every]
        return np.concatenate(pieces)

    def text(self, tokens: Sequence[int]) -> str:
        """What tokens stand for, special ones left out."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

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
        special = {one for names in ROLES.values() for one in names}
        return [word if word in special else self.tokenizer.decoder.decode([word]) for word in words]

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """The characters of sentences, or the words, that have no token, in the order they are met."""
        token = self.role("unknown")
        if token is None or isinstance(self.tokenizer.model, models.BPE):
            return []
        several = list(dict.fromkeys(sentences))
        strange: dict[str, None] = {}
        for sentence, one in zip(several, self.pieces(several), strict=True):
            spans = [span for span, number in zip(one.spans, one.tokens, strict=True) if number == token]
            strange |= dict.fromkeys(sentence[first:last] for first, last in spans)
        return list(strange)


def _opened(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # noqa: BLE001  # the library raises Exception itself
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{str(path)!r} is no tokenizer ({reason}); take it from the run again.") from None


def _word_pieces(path: Path) -> Tokenizer:
    """BERT's, from its list of words (Devlin et al. 2019)."""
    about = path.with_name("tokenizer_config.json")
    cased = about.is_file() and json.loads(about.read_text(encoding="utf-8")).get("do_lower_case") is False
    tokenizer = Tokenizer(models.WordPiece.from_file(str(path), unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return tokenizer


def _parts(text: str) -> Iterator[str]:
    """A text in parts that are tokenised side by side, cut between a line and the next."""
    first = 0
    while first < len(text):
        last = text.find("\n", first + PART)
        last = len(text) if last < 0 else last + 1
        yield text[first:last]
        first = last


def _from_text(text: str) -> Vocabulary:
    return Vocabulary(Tokenizer.from_str(text))


def _end(tokens: Sequence[int]) -> int:
    return next((index for index, token in enumerate(tokens) if token == END), len(tokens))
