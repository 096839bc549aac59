"""Loading ViT-L/16 from safetensors: time and memory, beside timm's own load of the same file.

.venv-peers/bin/python bench/load.py --rounds 5

Each load in a process of its own, in turns. Memory is the peak beyond what the process had before, in the sizes
of the weights.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))


def ours(path: str) -> object:
    """With the architecture read off the tensors."""
    import vitrail as vt

    return vt.load(path)


def timm_s(path: str) -> object:
    """Its architecture is given by name."""
    import stub  # noqa: F401
    import timm

    return timm.create_model("vit_large_patch16_224", checkpoint_path=path)


LOADERS = {"vitrail": ours, "timm": timm_s}


def peak() -> int:
    """The most bytes this process has had; not from getrusage, whose number a process inherits from its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure(name: str, path: str) -> None:
    """In a process of its own: seconds, and bytes beyond those before."""
    import torch

    if name == "timm":
        import stub  # noqa: F401
        import timm  # noqa: F401
    else:
        import vitrail.weights  # noqa: F401
    torch.randn(512, 512) @ torch.randn(512, 512)
    before = peak()
    began = time.perf_counter()
    model = LOADERS[name](path)
    seconds = time.perf_counter() - began
    grew = peak() - before
    with torch.no_grad():
        model(torch.zeros(1, 3, 224, 224))  # type: ignore[operator]
    print(json.dumps([seconds, grew]))


def main() -> None:
    """Print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(*options.one)
        return
    import stub  # noqa: F401
    import timm
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "large.safetensors")
        save_file(timm.create_model("vit_large_patch16_224").state_dict(), path)
        size = Path(path).stat().st_size
        found: dict[str, list[list[float]]] = {name: [] for name in LOADERS}
        for _ in range(options.rounds):
            for name, rows in found.items():
                words = [sys.executable, __file__, "--one", name, path]
                rows.append(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
        for name, rows in found.items():
            seconds, memory = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{name:8} {seconds:6.2f} s  {memory / size:5.2f} times the {size / 1e6:,.0f} MB of the weights")


if __name__ == "__main__":
    main()
