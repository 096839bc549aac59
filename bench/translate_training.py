"""Tokens a second of training a translation model: ours, and nn.Transformer, on the same batches.

.venv/bin/python bench/translate_training.py --data ../shared/data/multi30k [--set FIELD=VALUE]

The model, the data and the batches are those of `vitrail train train.en.gz train.de.gz`. Steps take turns; medians.
"""

import argparse
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Batch
from vitrail.data.vocabulary import PAD
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.machine import keep_memory
from vitrail.tasks import read_recipe
from vitrail.tasks.registry import TranslateTask
from vitrail.tasks.translate.examples import translate


class Plain(nn.Module):
    """nn.Transformer as it is taught: embeddings times sqrt(w), waves, the output tied to the embedding."""

    def __init__(self, ours: Seq2Seq) -> None:
        super().__init__()
        c = ours.config
        self.scale, self.embedding = c.width**0.5, nn.Embedding(c.source, c.width)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.transformer = nn.Transformer(
                c.width, c.heads, c.depth, c.decoder, c.hidden, c.dropout, batch_first=True, norm_first=c.order == "pre"
            )
        self.register_buffer("waves", ours.source.position.along(c.length))
        self.dropout = nn.Dropout(c.dropout)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.scale + self.waves[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        stream = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return stream @ self.embedding.weight.T


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], dest="settings")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    keep_memory()
    warnings.simplefilter("ignore")
    files = [str(options.data / f"train.{language}.gz") for language in ("en", "de")]
    task = TranslateTask.prepare(read_recipe(files, options.settings))
    size, smoothing = task.recipe.train.batch, task.recipe.train.smoothing
    updates = task.tokens.updates(size, np.random.default_rng(0))
    padding = 1 - task.tokens.lengths.sum() / task.tokens.with_padding(updates)
    ours = task.model().train()
    plain = Plain(ours).train()
    optimizers = {
        name: torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
        for name, model in (("vitrail", ours), ("plain", plain))
    }
    times: dict[str, list[float]] = {name: [] for name in optimizers}
    for rows in updates[: options.steps]:
        (source, given), targets, count = task.tokens.batch(rows, torch.device("cpu"))
        for name, optimizer in optimizers.items():
            began = time.perf_counter()
            optimizer.zero_grad()
            if name == "vitrail":
                loss = translate(ours, Batch((source, given), targets, count), smoothing)
            else:
                logits = plain(source, given)
                loss = F.cross_entropy(logits.mT, targets, ignore_index=PAD, label_smoothing=smoothing)
            loss.backward()
            optimizer.step()
            times[name].append((time.perf_counter() - began) / count)
    print(f"{size:,} tokens a batch, {padding:.1%} of what is computed is padding\n")
    print("| | tokens/s | ratio |\n| --- | ---: | ---: |")
    middle = {name: statistics.median(some[1:]) for name, some in times.items()}
    for name, seconds in middle.items():
        print(f"| {name} | {1 / seconds:,.0f} | {middle['plain'] / seconds:.2f} |")


if __name__ == "__main__":
    main()
