"""What translations are worth beside others: BLEU and chrF by sacrebleu, and how many are the same as a whole."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BINS = (5, 10, 15, 20, 30, 50)  # words of a reference, where lengths are divided
SAMPLES = 1_000  # of the bootstrap


@dataclass(frozen=True)
class Interval:
    """A number, and between what it lies in 95 of 100 samples of the sentences, drawn with replacement."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})")


@dataclass(frozen=True)
class LengthBin:
    """Sentences whose references have so many words: how many there are, and their BLEU."""

    words: str
    count: int
    bleu: float


@dataclass(frozen=True)
class TranslationScores:
    """All numbers of a measurement."""

    part: str
    method: str
    tested: int
    bleu: Interval
    signature: str
    chrf: Interval
    chrf_signature: str
    exact: float
    loss: float | None  # nats a token
    lengths: list[LengthBin] = field(default_factory=list)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    part: str,
    method: str,
    loss: float | None,
    full: bool = False,
) -> TranslationScores:
    """What translations are worth; in full with intervals, and by length."""
    from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415  # half a second
    from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415

    bleu, chrf = BLEU(tokenize=_tokenizer(references)), CHRF()
    many = SAMPLES if full and len(hypotheses) > 1 else 1
    try:
        corpus = bleu.corpus_score(list(hypotheses), [list(references)], n_bootstrap=many)
        letters = chrf.corpus_score(list(hypotheses), [list(references)], n_bootstrap=many)
    except TypeError:  # of sacrebleu, which cannot average draws of which some come to nothing at all
        many = 1
        corpus, letters = (one.corpus_score(list(hypotheses), [list(references)]) for one in (bleu, chrf))
    return TranslationScores(
        part=part,
        method=method,
        tested=len(hypotheses),
        bleu=_interval(corpus, many),
        signature=str(bleu.get_signature()),
        chrf=_interval(letters, many),
        chrf_signature=str(chrf.get_signature()),
        exact=sum(map(str.__eq__, hypotheses, references)) / len(hypotheses),
        loss=loss,
        lengths=_by_length(hypotheses, references, bleu),
    )


def paired_bleu(before: Sequence[str], after: Sequence[str], references: Sequence[str]) -> float:
    """The p-value of the difference in BLEU of two systems (Koehn 2004)."""
    from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415
    from sacrebleu.significance import PairedTest  # noqa: PLC0415

    if len(references) == 1 or list(before) == list(after):
        return 1.0
    bleu = BLEU(tokenize=_tokenizer(references), references=[list(references)])
    both: Any = [("before", list(before)), ("after", list(after))]
    _, results = PairedTest(both, {"BLEU": bleu}, None, test_type="bs", n_samples=SAMPLES)()
    second: Any = results["BLEU"][1]
    return 1.0 if second.p_value is None else float(second.p_value)


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """The chrF of each sentence by itself, by which the worst are found."""
    from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415

    chrf = CHRF()
    return [chrf.sentence_score(one, [other]).score for one, other in zip(hypotheses, references, strict=True)]


def _interval(result: Any, many: int) -> Interval:
    if many == 1:
        return Interval(round(result.score, 4))
    mean, half = float(result._mean), float(result._ci)  # noqa: SLF001  # which sacrebleu shows in its own output
    return Interval(round(result.score, 4), round(mean - half, 4), round(mean + half, 4))


def _by_length(hypotheses: Sequence[str], references: Sequence[str], bleu: Any) -> list[LengthBin]:
    bins: dict[int, list[int]] = {}
    for row, reference in enumerate(references):
        words = len(reference.split())
        bins.setdefault(sum(words > end for end in BINS), []).append(row)
    by_length = []
    for number, rows in sorted(bins.items()):
        first, last = (BINS[number - 1] + 1 if number else 1), (BINS[number] if number < len(BINS) else None)
        some = bleu.corpus_score([hypotheses[row] for row in rows], [[references[row] for row in rows]])
        by_length.append(
            LengthBin(f"{first} to {last}" if last else f"{first} or more", len(rows), round(some.score, 2))
        )
    return by_length


def _tokenizer(references: Sequence[str]) -> str:
    """By which sacrebleu finds the words of a language."""
    return "zh" if _chinese(references) else "char" if _spaceless(references) else "13a"


def _chinese(sentences: Sequence[str]) -> bool:
    letters = "".join(sentences[:200])
    return sum("\u4e00" <= one <= "\u9fff" for one in letters) > 0.3 * max(1, len(letters))


def _spaceless(sentences: Sequence[str]) -> bool:
    """Whether the language is written without spaces, such as Japanese and Thai."""
    letters = [one for one in "".join(sentences[:200]) if one.isalpha()]
    names = [unicodedata.name(one, "") for one in letters[:2000]]
    return sum(name.startswith(("HIRAGANA", "KATAKANA", "CJK", "THAI")) for name in names) > 0.5 * max(1, len(names))
