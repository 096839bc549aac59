"""Texts that are learned in seconds: a rule that every character, word and line keeps to."""

import random

SUBJECTS = {"cat": "sat", "dog": "ran", "bird": "flew", "fish": "swam"}
KINDS = {"the": "DET", "a": "DET", **dict.fromkeys(SUBJECTS, "NOUN"), **dict.fromkeys(SUBJECTS.values(), "VERB")}


def sentences(count, seed=0):
    draw = random.Random(seed)  # noqa: S311
    for _ in range(count):
        noun = draw.choice(list(SUBJECTS))
        yield ["the" if draw.random() < 0.5 else "a", noun, SUBJECTS[noun]]


def write_text(path, count=400, seed=0):
    path.write_text("".join(" ".join(words) + ".\n" for words in sentences(count, seed)), encoding="utf-8")
    return str(path)


def write_tags(path, count=200, seed=0, between="\t"):
    lines = ["".join(f"{word}{between}{KINDS[word]}\n" for word in words) for words in sentences(count, seed)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def write_labels(path, count=200, seed=0):
    lines = [f"{' '.join(words)}\t{words[1]}\n" for words in sentences(count, seed)]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


TINY = {
    "model.width": 32,
    "model.depth": 2,
    "model.heads": 2,
    "model.hidden": 64,
    "model.dropout": 0.0,
    "train.precision": "float32",
    "train.ema": 0.9,
    "train.evaluate": 5,
    "optim.lr": 0.01,
}
TEXT = {**TINY, "data.tokens": "characters", "model.length": 32, "train.batch": 16}
TAGS = {**TINY, "data.vocabulary": 300, "train.batch": 256}
