"""How good and how fast: BLEU and sentences a second of translation runs, over beams and passes; a table and a figure.

.venv/bin/python bench/translate_curve.py --source test.en.gz --target test.de.gz --out bench/results/translate.svg \
    "4 + 4 layers=runs/teacher" "4 + 1 layers=runs/shallow" "parallel=runs/parallel"

BLEU is that of all sentences. Speed is that of one sentence at a time, of every sixteenth: all settings take turns,
sentence by sentence, on as many threads as there are cores; medians.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter
from sacrebleu import corpus_bleu

from vitrail.data.pairs import read_pairs
from vitrail.machine import cores, keep_memory
from vitrail.runs import Run
from vitrail.tasks.translate.translator import Decoding, Translator

BEAMS, PASSES, APART = (1, 2, 5, 10), (1, 2, 4, 6, 10), 16


@dataclass
class Setting:
    """A run that is asked in one way."""

    name: str
    translator: Translator
    how: Decoding
    label: str
    bleu: float = 0.0
    times: list[float] = field(default_factory=list)

    @property
    def speed(self) -> float:
        """Sentences a second."""
        return 1 / statistics.median(self.times)


def settings_of(name: str, run: Path) -> list[Setting]:
    """Every way in which a run is asked."""
    translator = Translator.of(Run(run).trained())
    if translator.model.config.parallel:
        hows = [(Decoding(passes=passes), f"{passes} pass{'es' * (passes > 1)}") for passes in PASSES]
    else:
        hows = [(Decoding(method="greedy"), "greedy")]
        hows += [(Decoding(beam=beam), f"beam {beam}") for beam in BEAMS if beam > 1]
    return [Setting(name, translator, how, label) for how, label in hows]


def draw(settings: list[Setting], out: Path) -> None:
    """BLEU over sentences a second."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(dict.fromkeys(one.name for one in settings)):
        some = [one for one in settings if one.name == name]
        (line,) = axes.plot([one.speed for one in some], [one.bleu for one in some], marker="o", label=name)
        above = number % 3 < 2  # so that lines next to each other do not write over each other
        for one in some:
            place = {"xytext": (3, 5) if above else (-3, -10), "ha": "left" if above else "right"}
            place["color"] = line.get_color()
            axes.annotate(one.label, (one.speed, one.bleu), textcoords="offset points", fontsize=7, **place)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(ScalarFormatter())
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.margins(x=0.12)
    axes.set_xlabel("sentences a second, one at a time")
    axes.set_ylabel("BLEU")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(loc="lower left")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    """Print a Markdown table, and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(cores())
    pairs, _ = read_pairs([options.source, options.target])
    settings = [one for named in options.runs for one in settings_of(*_split(named))]
    for one in settings:
        said = [found.text for found in one.translator.translations(pairs.sources, one.how)]
        one.bleu = corpus_bleu(said, [list(pairs.targets)]).score
    for line in pairs.sources[::APART]:
        for one in settings:
            tokens = one.translator.words.source.encode([line])
            began = time.perf_counter()
            one.translator.hypotheses(tokens, one.how)
            one.times.append(time.perf_counter() - began)
    print("| model | asked for | BLEU | sentences/s |\n| --- | --- | ---: | ---: |")
    for one in settings:
        print(f"| {one.name} | {one.label} | {one.bleu:.1f} | {one.speed:.1f} |")
    draw(settings, options.out)


def _split(named: str) -> tuple[str, Path]:
    name, _, run = named.partition("=")
    return name, Path(run)


if __name__ == "__main__":
    main()
