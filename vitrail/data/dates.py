"""Dates as people write them in dozens of languages, and as machines do: pairs with no download."""

from datetime import date, timedelta

import numpy as np

from vitrail.data.pairs import PairParts, Pairs, pair_sources

LOCALES = (  # noqa: SIM905  # as one text, which is easier to read than fifty
    "af az bg ca cs cy da de el en_GB en_US es et eu fi fr ga gl hr hu hy id is it ja ka kk ko lt lv mk "
    "ms mt nb nl nn pl pt pt_BR ro ru sk sl sq sr sv sw tr uk vi zh zh_TW"
).split()
STYLES = ("medium", "long", "full")  # not short, in which 3/4/21 is in March or in April
FIRST, DAYS = date(1950, 1, 1), 36_525  # a hundred years
COUNTS = (20_000, 1_000, 1_000)  # to train on, to validate, to test on


@pair_sources.add("dates")
def dates(seed: int) -> PairParts:
    """22,000 dates from 1950 to 2049 in 52 languages and 3 styles by Babel (Unicode's CLDR), and as ISO 8601 has them.

    No text stands for two dates, and none is in two parts.
    """
    from babel.dates import format_date  # noqa: PLC0415  # which only these need

    random, texts = np.random.default_rng(seed), dict[str, str]()
    while len(texts) < sum(COUNTS):
        day = FIRST + timedelta(days=int(random.integers(DAYS)))
        locale, style = LOCALES[random.integers(len(LOCALES))], STYLES[random.integers(len(STYLES))]
        texts.setdefault(format_date(day, style, locale=locale), day.isoformat())
    every = Pairs(list(texts), list(texts.values()), list(range(1, len(texts) + 1)), "dates")
    ends = np.cumsum(COUNTS).tolist()
    train, held, later = (every.at(range(end - count, end)) for end, count in zip(ends, COUNTS, strict=True))
    return PairParts(train, held, "validation", later, origin="dates by Babel", total=COUNTS[0])
