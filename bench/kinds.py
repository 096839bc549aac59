"""What each kind of attention is worth: the same model, data and time with each.

.venv/bin/python bench/kinds.py copy [--minutes 2] [--kinds softmax local ...]
.venv/bin/python bench/kinds.py text --data input.txt.gz [--minutes 5]
.venv/bin/python bench/kinds.py fashion [--minutes 3]

`copy`: a GPT of 1,024 tokens is given 512 random ones, and the same again: what it says of the second half needs a
token 512 before, which a window does not reach. `text`: a GPT of characters with 1,024 at a time. `fashion`: a ViT with
patches of 2 pixels, 196 tokens. Loss or accuracy after the same time, each kind in turn.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import vitrail as vt
from vitrail.machine import keep_memory
from vitrail.training.optim import adamw

KINDS = ("softmax", "local", "bigbird", "strided", "fixed", "hashing", "linear")
HALF, TOKENS = 512, 32


def copy(kind: str, minutes: float) -> dict[str, float]:
    """How often the second half is said right."""
    torch.manual_seed(0)
    model = vt.build("gpt", tokens=TOKENS, width=64, depth=2, heads=4, length=2 * HALF, position="learned", kernel=kind)
    optimizer = adamw(model, 3e-3, 0.01, (0.9, 0.98))

    def batch(count: int) -> torch.Tensor:
        one = torch.randint(TOKENS, (count, HALF))
        return torch.cat([one, one], 1)

    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < 60 * minutes:
        tokens = batch(4)
        logits = model(tokens[:, :-1])[:, HALF - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, HALF:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    model.eval()
    with torch.no_grad():
        tokens = batch(16)
        said = model(tokens[:, :-1])[:, HALF - 1 :].argmax(-1)
    return {"accuracy of the second half": float((said == tokens[:, HALF:]).double().mean()), "steps": steps}


def trained(kind: str, words: list[str], minutes: float) -> dict[str, Any]:
    """What `vitrail train` comes to."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "vitrail", "train", *words, "--minutes", str(minutes), "--json"]
        command += ["--out", str(Path(folder) / "run"), "--set", f"model.kernel={kind}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(ran.stdout) if ran.returncode == 0 else {"failed": ran.stderr.strip().splitlines()[-1]}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("copy", "text", "fashion"))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--data", type=Path)
    a = parser.parse_args()
    keep_memory()
    text = [str(a.data), *["--set", "data.tokens=characters", "--set", "model.length=1024", "--set", "train.batch=2"]]
    shape = "--set model.patch=2 --set model.width=96 --set model.depth=4 --set model.heads=4"
    for kind in a.kinds:
        if a.what == "copy":
            found = copy(kind, a.minutes)
        else:
            found = trained(kind, text if a.what == "text" else ["fashion", *shape.split()], a.minutes)
        shown = ("accuracy of the second half", "nats", "accuracy", "steps", "failed")
        print(kind, {name: found[name] for name in shown if name in found}, flush=True)


if __name__ == "__main__":
    main()
