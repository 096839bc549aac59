"""What was found and what will be done, said before a training begins."""

from typing import TYPE_CHECKING

from vitrail.cli.progress import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vitrail.data import Parts
    from vitrail.train import Job, Prepared, Probe

NAMED = 10  # classes, or files set aside, that are named one by one


def plan(prepared: "Prepared", job: "Job", seconds: float) -> str:
    """The data, the model, the training, and what was chosen for it."""
    recipe, parts = prepared.recipe, prepared.parts
    o, t = recipe.optim, recipe.train
    rates = f"Muon {o.muon:g} and AdamW {o.lr:g}" if o.name == "muon" else f"AdamW {o.lr:g}"
    changes = [f"{name} {value:g}" for name, value in recipe.augment.model_dump().items() if value]
    extras = [
        f"decay {o.decay:g}",
        f"{o.layer_decay:g} of the rate a layer down" * (o.layer_decay != 1),
        f"smoothing {t.smoothing:g}" * bool(t.smoothing),
        f"average {t.ema:g}" * bool(t.ema),
        f"{t.accumulate} shares a step" * (t.accumulate > 1),
        t.precision * (t.precision != "float32"),
        f"{job.world.size} processes" * (job.world.size > 1),
    ]
    left = (job.total - job.step) * seconds
    steps = f"{job.batches.per_epoch:,} step{'s' * (job.batches.per_epoch > 1)}"
    how = ", ".join(filter(None, [*extras, f"seed {t.seed}", str(job.world.device)]))
    lines = [
        *_data(parts),
        *_model(prepared, job.parameters),
        f"train     {t.epochs} epochs of {steps}, batch {t.batch}, {rates}, {how}",
        f"augment   {', '.join(changes) or 'nothing'}",
        f"normalise {_listed(job.normalise.mean)} in the mean, {_listed(job.normalise.std)} of deviation",
        f"time      about {span(left)}",
        f"run       {job.out}",
    ]
    return "\n".join([*lines, *_choices(prepared)])


def probe_plan(prepared: "Prepared", probe: "Probe") -> str:
    """The same, where the head alone is trained."""
    lines = [
        *_data(prepared.parts),
        *_model(prepared, probe.parameters),
        "train     the head alone, by logistic regression on features of the frozen model",
        f"normalise {_listed(probe.normalise.mean)} in the mean, {_listed(probe.normalise.std)} of deviation",
        f"run       {probe.out}",
    ]
    return "\n".join([*lines, *_choices(prepared)])


def _model(prepared: "Prepared", parameters: int) -> list[str]:
    c, weights = prepared.config, prepared.weights
    shape = f"{c.size[0]} x {c.size[1]} pixels, {c.channels} channel{'s' * (c.channels > 1)}, patches of {c.patch}"
    lines = [f"model     {shape}, width {c.width}, depth {c.depth}, {c.heads} heads: {parameters:,} parameters"]
    if weights is not None:
        lines.append(f"weights   {weights.path} ({weights.format})")
        lines += [f"          {note}" for note in weights.remarks]
    return lines


def _choices(prepared: "Prepared") -> list[str]:
    if not prepared.choices:
        return []
    rows = [(choice.field, str(choice.value), choice.why) for choice in prepared.choices]
    field, value = (max(len(row[column]) for row in rows) for column in (0, 1))
    title = "chosen from the data; change any with --set FIELD=VALUE:"
    return [title, *(f"  {row[0]:<{field}}  {row[1]:<{value}}  {row[2]}".rstrip() for row in rows)]


def _data(parts: "Parts") -> list[str]:
    counts = parts.train.labels.bincount(minlength=len(parts.train.names)).tolist()
    by_size = sorted(zip(counts, parts.train.names, strict=True), reverse=True)
    listed = ", ".join(f"{name} {count:,}" for count, name in by_size[:NAMED]) + ", ..." * (len(by_size) > NAMED)
    sizes = [f"{height} x {width}" for height, width in parts.sizes]
    size = sizes[0] if len(set(sizes)) == 1 else f"{sizes[0]} to {sizes[2]}, the middle one {sizes[1]}"
    both = f"{len(parts.train):,} pictures to train on, {len(parts.test):,} to test on"
    lines = [
        f"data      {parts.layout}: {both}, of {size} pixels",
        f"classes   {len(counts)}: {listed}",
    ]
    if by_size[0][0] > 3 * by_size[-1][0] > 0:
        lines.append(
            f"balance   {by_size[0][1]!r} has {by_size[0][0] / by_size[-1][0]:.0f} times the pictures of "
            f"{by_size[-1][1]!r}: look at the accuracy of each class"
        )
    if parts.aside:
        lines.append(f"set aside {len(parts.aside)}, all in data.json:")
        lines += [f"  {one.what}: {one.why}" for one in parts.aside[:NAMED]]
        lines += [f"  ... and {len(parts.aside) - NAMED} more"] * (len(parts.aside) > NAMED)
    if leaks := parts.leaks:
        lines.append(
            f"warning   {len(leaks)} of the pictures to test on are also trained on, so the accuracy will be too high:"
        )
        lines += [f"  {one} is {other}" for one, other in leaks[:NAMED]]
        lines += [f"  ... and {len(leaks) - NAMED} more"] * (len(leaks) > NAMED)
    lines += [
        f"left      {folder} is not used; `vitrail evaluate RUN {folder}` measures on it" for folder in parts.left
    ]
    return lines


def _listed(values: "Sequence[float]") -> str:
    return " ".join(f"{value:.3f}" for value in values)
