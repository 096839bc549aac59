"""A language that is learned in seconds: words spelled backwards."""

import random

LETTERS = "abcdefgh"


def pairs(count, seed=0, longest=5):
    draw = random.Random(seed)  # noqa: S311
    words = ["".join(draw.choices(LETTERS, k=draw.randint(2, longest))) for _ in range(count)]
    return [(word, word[::-1].upper()) for word in words]


def write_pairs(folder, count=400, seed=0, name="train"):
    """Two files that go together line by line."""
    files = [folder / f"{name}.low", folder / f"{name}.up"]
    for side, file in enumerate(files):
        file.write_text("".join(f"{pair[side]}\n" for pair in pairs(count, seed)), encoding="utf-8")
    return [str(file) for file in files]


SMALL = {
    "data.tokens": "characters",
    "data.measure": "exact",
    "data.shared": "true",
    "model.width": 32,
    "model.depth": 1,
    "model.heads": 2,
    "model.hidden": 64,
    "model.dropout": 0.0,
    "train.batch": 256,
    "train.evaluate": 20,
    "train.ema": 0.9,
    "optim.lr": 0.005,
}
