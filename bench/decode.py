"""Sentences a second of one translation model, with the same weights: ours, HF's generate, CTranslate2 in float32.

PYTHONPATH=peers .venv-peers/bin/python bench/decode.py RUN --data test_2016_flickr.en.gz [--parallel RUN] [--small RUN]

The run is converted to HF's form, which CTranslate2's own converter reads. Each system is in a process of its own, on
as many threads as there are cores, the others on one too; they take turns, some batches each; medians over the
batches. That all of them say the same is checked on the way. With what `vitrail shrink RUN --out SMALL` wrote, that and
CTranslate2 in int8 too.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

import vitrail as vt
from vitrail.data.batches import padded
from vitrail.data.text import read_lines
from vitrail.data.vocabulary import BEGIN, END, MASK, PAD, SPECIAL, UNKNOWN
from vitrail.machine import cores, keep_memory
from vitrail.runs import Run
from vitrail.tasks.translate.translator import Decoding, Translator
from vitrail.weights.tokenizers import carry

Batch = list[list[int]]
Translate = Callable[[Batch], list[list[int]]]
TURN, REST = 8, 0.5  # batches of a turn, and seconds before it: threads of the last one still wait for more, busily
HF = "HF generate"
NEVER = [PAD, BEGIN, UNKNOWN, MASK]


def ours(run: Path, how: Decoding) -> Translate:
    """Vitrail's, by whatever answers soonest."""
    translator = Translator.of(Run(run).trained(Run(run).answering()))
    return lambda batch: [list(every[0].tokens) for every in translator.hypotheses(batch, how)]


def theirs(folder: Path, beam: int, threads: int) -> Translate:
    """HF's generate."""
    import stub  # noqa: F401
    from transformers import AutoModelForSeq2SeqLM

    torch.set_num_threads(threads)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    @torch.inference_mode()
    def translate(batch: Batch) -> list[list[int]]:
        source = padded(batch, PAD)
        most = 2 * source.shape[1] + 10
        said = model.generate(
            source,
            attention_mask=(source != PAD).long(),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=most,
            max_length=None,
            suppress_tokens=NEVER,
        )
        return [_whole(row[1:].tolist()) for row in said]

    return translate


def convert(folder: Path) -> None:
    """HF's form to CTranslate2's, beside it."""
    import stub  # noqa: F401
    from ctranslate2.converters import TransformersConverter

    out = folder / "ctranslate2"
    TransformersConverter(str(folder)).convert(str(out))
    about = json.loads((out / "config.json").read_text())  # which has Pegasus begin with its padding
    (out / "config.json").write_text(json.dumps({**about, "decoder_start_token": SPECIAL[BEGIN]}))


def compiled(folder: Path, beam: int, threads: int, kind: str = "float32") -> Translate:
    """CTranslate2's, computed in a type of numbers."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"), compute_type=kind, inter_threads=1, intra_threads=threads
    )
    names = Translator.of(Run(folder.parent / "run").trained()).words.target.tokenizer
    words = [names.id_to_token(number) for number in range(names.get_vocab_size())]
    numbers = {word: number for number, word in enumerate(words)}

    def translate(batch: Batch) -> list[list[int]]:
        longest = max(map(len, batch))
        said = translator.translate_batch(
            [[words[token] for token in one] for one in batch],
            beam_size=beam,
            max_decoding_length=2 * longest + 10,
            length_penalty=1.0,
            return_end_token=True,
            suppress_sequences=[[SPECIAL[token]] for token in NEVER if token != PAD],
        )
        return [[numbers[word] for word in one.hypotheses[0]] for one in said]

    return translate


def _whole(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


class System:
    """A system in a process of its own, with nothing of the others in it."""

    def __init__(self, make: Callable[..., Translate], *given: object) -> None:
        context = get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, initializer=_begin, initargs=(make, *given))

    def __call__(self, batches: list[Batch]) -> tuple[list[float], list[list[int]]]:
        """Seconds a sentence of each batch, and what was said."""
        return self.pool.submit(_timed, batches).result()


def _begin(make: Callable[..., Translate], *given: object) -> None:
    keep_memory()
    torch.set_num_threads(cores())
    globals()["translate"] = make(*given)


def _timed(batches: list[Batch]) -> tuple[list[float], list[list[int]]]:
    times, said = [], []
    for batch in batches:
        began = time.perf_counter()
        said += globals()["translate"](batch)
        times.append((time.perf_counter() - began) / len(batch))
    return times, said


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parallel", type=Path)
    parser.add_argument("--small", type=Path)
    parser.add_argument("--sentences", type=int, default=320)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    options = parser.parse_args()
    lines = read_lines(options.data)[: options.sentences]
    words = Translator.of(Run(options.run).trained()).words
    tokens = sorted(words.source.encode(lines), key=len)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "hf"
        (Path(scratch) / "run").symlink_to(options.run.resolve())
        vt.save(vt.load(options.run), folder, "hf")
        carry(options.run, folder, "hf")
        convert(folder)
        print("| batch | beam | system | sentences/s | vitrail's over it | same as HF's |")
        print("| ---: | ---: | --- | ---: | ---: | ---: |")
        for beam in options.beams:
            how = Decoding(method="greedy") if beam == 1 else Decoding(beam=beam)
            systems = {"vitrail": System(ours, options.run, how), HF: System(theirs, folder, beam, cores())}
            systems |= {"HF generate, 1 thread": System(theirs, folder, beam, 1)} if cores() > 1 else {}
            systems |= {f"CTranslate2, {n} threads": System(compiled, folder, beam, n) for n in (1, cores())}
            if options.small is not None:
                systems["vitrail, shrunk"] = System(ours, options.small, how)
                kinds = {n: System(compiled, folder, beam, n, "int8") for n in (1, cores())}
                systems |= {f"CTranslate2 int8, {n} threads": system for n, system in kinds.items()}
            if options.parallel is not None:
                systems["vitrail, 4 passes"] = System(ours, options.parallel, Decoding(method="parallel", passes=4))
            for size in options.batches:
                few = tokens[:: max(1, len(tokens) // 64)] if size == 1 else tokens
                _compare(systems, [few[first : first + size] for first in range(0, len(few), size)], size, beam)


def _compare(systems: dict[str, System], batches: list[Batch], size: int, beam: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in systems}
    said: dict[str, list[list[int]]] = {name: [] for name in systems}
    for system in systems.values():
        system(batches[:2])
    for first in range(0, len(batches), TURN):
        for name, system in systems.items():
            time.sleep(REST)
            some, found = system(batches[first : first + TURN])
            times[name] += some
            said[name] += found
    middle = {name: statistics.median(some) for name, some in times.items()}
    for name, seconds in middle.items():
        same = sum(map(list.__eq__, said[name], said[HF])) / len(said[name])
        print(
            f"| {size} | {beam} | {name} | {1 / seconds:.1f} | {seconds / middle['vitrail']:.2f} | {same:.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
