"""What `vitrail shrink` made of a model, beside what the peers make of it, on the same pictures and machine.

.venv-peers/bin/python bench/shrink.py ORIGINAL SMALL --work DIR [--peers ort torchao nncf pruning] [--minutes 10]

ORIGINAL is a run that labels pictures, SMALL what `vitrail shrink ORIGINAL --out SMALL ...` wrote. Float32 models of
the original's shape: timm, HF, ONNX Runtime on timm's model as PyTorch exports it and on ours, and ours. Peers that
shrink, as their documentation has it: ONNX Runtime's dynamic int8 (its defaults), torchao (int8 weights and
activations, compiled), NNCF (`quantize_with_accuracy_control` at the same bound, calibrated on 300 pictures to train
on), Torch-Pruning (group magnitude, half of the heads and of the width as in its ViT example, then `--minutes` of
training on the labels). Milliseconds a picture with batches of 1 and 16, all in turn, medians; accuracy on the run's
own test pictures. What is in DIR already is not made again.
"""

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import systems

from vitrail.data import unit
from vitrail.machine import keep_memory
from vitrail.runs import Run
from vitrail.shrink.material import size_of
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.weights.onnx import INPUT, OnnxModel, save_onnx

ROUNDS, BATCHES = 15, (1, 16)
REST = 0.1  # seconds between two calls: the threads of one system go on spinning into the next one's time
CALIBRATED = 300  # pictures


class Case:
    """A run, its pictures, and the peers' models of it."""

    def __init__(self, original: Path, work: Path) -> None:
        self.run, self.work = Run(original), work
        self.weights = self.run.weights()
        self.config = self.weights.config
        table = {**self.run.recipe.model_dump(mode="json", exclude_unset=True)}
        table = {name: value for name, value in table.items() if name not in ("teacher", "optim", "augment")}
        start = {"path": str(original), "freeze": False}
        self.task = tasks["pictures"].prepare(parse_recipe({**table, "weights": start, "model": size_of(self.weights)}))
        self.task = self.task.gathered()
        self.whole = work / "whole.onnx"
        if not self.whole.is_file():
            save_onnx(self.weights, self.whole)

    def accuracy(self, model: Any, weights: Any = None) -> float:
        """On the test pictures."""
        return self.task.held_out.seen_by(weights or self.weights).measure(model).values["accuracy"]

    def onnx(self, path: Path) -> tuple[OnnxModel, float]:
        """A file, and what it is worth."""
        from vitrail.weights import read

        weights = read(path)
        return weights.model(), self.accuracy(weights.model(), weights)

    def some(self, count: int) -> Any:
        """Pictures to train on, as they are, (m c H W) from 0 to 1."""
        pictures = self.task.parts.train
        rows = np.random.default_rng(0).permutation(len(pictures))[:count]
        return unit(pictures.store[pictures.rows[rows]]).numpy()


def ort(case: Case) -> tuple[Any, float, int]:
    """ONNX Runtime's dynamic quantization, its defaults."""
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    path = case.work / "ort.onnx"
    if not path.is_file():
        graph = onnx.load(str(case.whole))
        del graph.graph.value_info[:]
        bare = case.work / "bare.onnx"
        onnx.save(graph, str(bare))
        quantize_dynamic(str(bare), str(path))
        _named(path, case.whole)
    model, accuracy = case.onnx(path)
    return model, accuracy, path.stat().st_size


def torchao(case: Case) -> tuple[Any, float, int]:
    """Torchao's int8 weights and activations on our own modules, compiled, as it says."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = case.run.weights().model().float()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    path = case.work / "torchao.pt"
    torch.save(model.state_dict(), path)
    compiled = torch.compile(model)
    return compiled, case.accuracy(model), path.stat().st_size


def nncf(case: Case) -> tuple[Any, float, int]:
    """NNCF with accuracy control, on the ONNX file, within the same bound."""
    import nncf
    import onnx

    path = case.work / "nncf.onnx"
    if not path.is_file():
        images = case.some(CALIBRATED)
        pictures = case.task.held_out.pictures
        tests = [
            (unit(pictures.store[row])[None].numpy(), int(label))
            for row, label in zip(pictures.rows, pictures.labels, strict=True)
        ]
        calibration = nncf.Dataset([{INPUT: one[None]} for one in images])
        validation = nncf.Dataset(tests, lambda one: {INPUT: one[0]})

        def right(model: Any, data: Any) -> float:
            session = _session(model)
            return float(np.mean([session.run(["logits"], {INPUT: one})[0].argmax() == label for one, label in data]))

        graph = onnx.load(str(case.whole))
        made = nncf.quantize_with_accuracy_control(
            graph,
            calibration_dataset=calibration,
            validation_dataset=validation,
            validation_fn=right,
            max_drop=0.005,
            model_type=nncf.ModelType.TRANSFORMER,
        )
        onnx.save(made, str(path))
        _named(path, case.whole)
    model, accuracy = case.onnx(path)
    return model, accuracy, path.stat().st_size


def _session(model: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _named(path: Path, like: Path) -> None:
    """With what the file it was made of says of itself, so that our code can run it."""
    import onnx

    from vitrail.weights.onnx import KEY, metadata

    graph = onnx.load(str(path))
    onnx.helper.set_model_props(graph, {KEY: json.dumps(metadata(like))})
    onnx.save(graph, str(path))


def pruning(case: Case, minutes: float) -> tuple[Any, float, int]:
    """Torch-Pruning on timm's model with the same weights, then trained on the labels."""
    import torch_pruning as tp
    from timm.models.vision_transformer import Attention

    import vitrail as vt

    path = case.work / "pruned.pt"
    c = case.config
    if not path.is_file():
        model = _timm(case)
        vt.save(case.run.weights().model(), case.work / "timm.safetensors", "timm")
        from safetensors.torch import load_file

        model.load_state_dict(load_file(case.work / "timm.safetensors"))
        example = torch.zeros(1, c.channels, *c.size)
        heads = {one.qkv: one.num_heads for one in model.modules() if isinstance(one, Attention)}
        for one in heads:
            next(m for m in model.modules() if isinstance(m, Attention) and m.qkv is one).fused_attn = False
        pruner = tp.pruner.BasePruner(
            model,
            example,
            importance=tp.importance.GroupMagnitudeImportance(),
            global_pruning=False,
            pruning_ratio=0.5,
            num_heads=heads,
            prune_num_heads=True,
            head_pruning_ratio=0.5,
            prune_head_dims=False,
            ignored_layers=[model.head],
        )
        pruner.step()
        for one in model.modules():
            if isinstance(one, Attention):
                one.num_heads = pruner.num_heads[one.qkv]
                one.head_dim = one.qkv.out_features // (3 * one.num_heads)
                one.attn_dim = one.num_heads * one.head_dim
                one.fused_attn = True
        _trained(case, model, minutes)
        torch.save(model, path)
    model = torch.load(path, weights_only=False).eval()
    wrapped = systems.Logits(model, lambda one, images: one(images))
    wrapped.config = c
    return wrapped, case.accuracy(_Plain(wrapped, c)), path.stat().st_size


class _Plain(nn.Module):
    """A peer's model called as ours are."""

    def __init__(self, model: nn.Module, config: Any) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, images: torch.Tensor, *, shortest: bool = False) -> torch.Tensor:  # noqa: ARG002
        return self.model(images)


def _timm(case: Case) -> nn.Module:
    from timm.models import VisionTransformer

    c = case.config
    model = VisionTransformer(
        img_size=c.size,
        patch_size=c.patch,
        in_chans=c.channels,
        num_classes=c.classes,
        embed_dim=c.width,
        depth=c.depth,
        num_heads=c.heads,
        mlp_ratio=c.hidden / c.width,
        reg_tokens=c.registers,
        init_values=c.layer_scale,
        global_pool="token" if c.pool == "class" else "avg",
        class_token=c.pool == "class" or bool(c.prefix),
        fc_norm=False,
    )
    if c.stem != "patch":  # convolutions, which both peers are given as their own
        model.patch_embed = _Stem(case)
    return model.eval()


class _Stem(nn.Module):
    """The original's convolutions, in the place of a peer's patches."""

    def __init__(self, case: "Case") -> None:
        super().__init__()
        self.layers = case.run.weights().model().float().embed.stem.layers

    @property
    def projection(self) -> nn.Module:
        """Of which HF asks for the type."""
        return self.layers[0]

    def forward(self, images: torch.Tensor, **_: Any) -> torch.Tensor:
        """(b c H W) -> (b n w)."""
        return self.layers(images).flatten(2).mT


def _hf(case: Case, shape: systems.Shape) -> nn.Module:
    model = systems.hf(shape)
    if case.config.stem != "patch":
        model.model.vit.embeddings.patch_embeddings = _Stem(case)
    return model.eval()


def _exported(case: Case) -> Callable[[torch.Tensor], Any]:
    """The model of timm as PyTorch's exporter has it, with a free batch, run by ONNX Runtime."""
    import onnxruntime

    path, c = case.work / "timm.onnx", case.config
    if not path.is_file():
        example = torch.zeros(2, c.channels, *c.size)
        batch = torch.export.Dim("batch", min=1, max=1024)
        torch.onnx.export(
            _timm(case), (example,), path, dynamo=True, dynamic_shapes=({0: batch},), external_data=False, verbose=False
        )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images.numpy()})


def _trained(case: Case, model: nn.Module, minutes: float) -> None:
    """AdamW on the labels for so many minutes, with the run's own augmentation."""
    task, began = case.task, time.monotonic()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.05)
    step = 0
    while time.monotonic() - began < 60 * minutes:
        for rows in task.examples.updates(task.recipe.train.batch, np.random.default_rng(step)):
            gone = (time.monotonic() - began) / (60 * minutes)
            if gone >= 1:
                break
            images, labels, _ = task.examples.batch(rows, torch.device("cpu"))
            for group in optimizer.param_groups:
                group["lr"] = 3e-4 * min(1.0, (step + 1) / 10) * 0.5 * (1 + np.cos(np.pi * gone))
            loss = nn.functional.cross_entropy(model.train()(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
    model.eval()
    print(f"Torch-Pruning: {step} steps of training", file=sys.stderr, flush=True)


def speeds(calls: dict[str, Callable[[torch.Tensor], Any]], configs: dict[str, Any]) -> dict[str, list[float]]:
    """Milliseconds a picture, medians, at each batch; of the size that each looks at."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for batch in BATCHES:
            images = {name: torch.rand(batch, one.channels, *one.size) for name, one in configs.items()}
            taken: dict[str, list[float]] = {name: [] for name in calls}
            for number in range(ROUNDS + 2):
                for name, call in calls.items():
                    time.sleep(REST)
                    call(images[name])  # which finds caches and threads asleep
                    began = time.perf_counter()
                    call(images[name])
                    if number > 1:
                        taken[name].append(1e3 * (time.perf_counter() - began) / batch)
            for name, some in taken.items():
                found[name].append(statistics.median(some))
    return found


def main() -> None:
    """Make what is asked for, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("original", type=Path)
    parser.add_argument("small", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--peers", nargs="*", default=["ort", "torchao", "nncf", "pruning"])
    parser.add_argument("--minutes", type=float, default=10)
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    keep_memory()
    a.work.mkdir(parents=True, exist_ok=True)
    case = Case(a.original, a.work)
    c, state = case.config, json.loads((a.small / "shrink.json").read_text())
    first, now = state["steps"][0], [step for step in state["steps"] if step["kept"]][-1]
    shape = systems.Shape(c.size[0], c.patch, c.channels, c.width, c.depth, c.heads, c.hidden, c.classes)
    size = first["costs"]["bytes"]
    rows: dict[str, tuple[float | None, int | None]] = {
        "timm, float32": (None, size),
        "HF, float32": (None, size),
        "ONNX Runtime, float32": (first["worth"]["value"], case.whole.stat().st_size),
        "ONNX Runtime on timm's, float32": (None, size),
        "vitrail, float32": (first["worth"]["value"], size),
    }
    own = case.run.weights().model().float()
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "timm, float32": _timm(case),
        "HF, float32": _hf(case, shape),
        "ONNX Runtime, float32": OnnxModel(case.whole, c),
        "ONNX Runtime on timm's, float32": _exported(case),
        "vitrail, float32": lambda images: own(images, shortest=True),
    }
    for name in a.peers:
        try:
            model, accuracy, weight = pruning(case, a.minutes) if name == "pruning" else globals()[name](case)
        except Exception as error:  # noqa: BLE001  # a peer that cannot is named, and the others go on
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
            continue
        calls[name], rows[name] = model, (accuracy, weight)
        print(f"{name}: {accuracy:.4f}, {weight / 1e6:.1f} MB", file=sys.stderr, flush=True)
    small = Run(a.small).answering().model()
    configs = dict.fromkeys(calls, c) | {"vitrail shrink": small.config}
    calls["vitrail shrink"], rows["vitrail shrink"] = small, (now["worth"]["value"], now["costs"]["bytes"])
    found = speeds(calls, configs)
    theirs = [name for name in rows if name.endswith(", float32") and not name.startswith("vitrail")]
    best = [min(found[name][place] for name in theirs) for place in (0, 1)]
    print("| | accuracy | MB | ms at 1 | ms at 16 | times the fastest peer's float32 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, (accuracy, weight) in rows.items():
        ms = found[name]
        times = " and ".join(f"{one / other:.2f}" for one, other in zip(best, ms, strict=True))
        said = "" if accuracy is None else f"{accuracy:.2%}"
        print(f"| {name} | {said} | {(weight or 0) / 1e6:.1f} | {ms[0]:.2f} | {ms[1]:.2f} | {times} |")
    (a.work / "results.json").write_text(json.dumps({"ms": found, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
