"""Experiments with the parts of a ViT: kernels, patches, heads, depth, augmentation."""

from vitrail.compare.experiments import Arm, Base, Experiment, experiments
from vitrail.errors import InputError
from vitrail.tasks.pictures.recipe import Augment


@experiments.add("kernels")
def kernels(base: Base) -> Experiment:
    """How attention is weighed, and between which tokens it is."""
    down, across = base.config.grid
    near = max(1, min(down, across) // 3)
    options = {
        "softmax": "softmax",
        "relu": "relu",
        "linear": {"name": "linear"},
        "local": {"name": "local", "window": near},
        "axial": {"name": "axial"},
        "star": {"name": "star"},
    }
    return Experiment(
        "kernels",
        "What does attention between fewer tokens, or weighed otherwise, cost in accuracy?",
        [Arm(name, {"model.kernel": value}) for name, value in options.items()],
    )


@experiments.add("patches")
def patches(base: Base) -> Experiment:
    """Patches of several sizes."""
    config = base.config
    sizes = [size for size in (1, 2, 4, 7, 8, 14, 16, 28, 32) if all(side % size == 0 for side in config.size)]
    sizes = [size for size in sizes if 4 <= config.size[0] * config.size[1] // size**2 <= 400]  # noqa: PLR2004
    if len(sizes) < 2:  # noqa: PLR2004
        raise InputError(f"pictures of {config.size[0]} pixels can be cut in one way alone; choose another --image.")
    return Experiment(
        "patches",
        "What are smaller patches worth, of which there are more?",
        [Arm(f"patches of {size}", {"model.patch": size, "model.stem": "patch"}) for size in sizes],
        "Dosovitskiy et al. 2021, table 5: smaller patches are better, for more multiply-adds.",
    )


@experiments.add("heads")
def heads(base: Base) -> Experiment:
    """Attention in more or fewer heads of the same width in all."""
    width = base.config.width
    counts = [count for count in (1, 2, 3, 4, 6, 8, 12, 16) if width % count == 0 and width // count >= 8]  # noqa: PLR2004
    return Experiment(
        "heads",
        "Into how many heads should attention be cut?",
        [Arm(f"{count} heads" if count > 1 else "1 head", {"model.heads": count}) for count in counts],
        "Vaswani et al. 2017, table 3 (A): one head loses 0.9 BLEU, too many lose too.",
    )


@experiments.add("depth")
def depth(base: Base) -> Experiment:
    """More or fewer layers."""
    del base
    return Experiment(
        "depth",
        "What is another layer worth?",
        [Arm(f"{count} layers" if count > 1 else "1 layer", {"model.depth": count}) for count in (1, 2, 4, 6, 8)],
    )


@experiments.add("augment")
def augment(base: Base) -> Experiment:
    """Pictures changed at random, by one way more in each arm."""
    del base
    nothing = dict.fromkeys(Augment.model_fields, 0.0)
    steps = [
        ("nothing", {}),
        ("moved", {"shift": 0.1}),
        ("and turned and zoomed", {"rotate": 10.0, "zoom": 0.1}),
        ("and mixed", {"mixup": 0.5, "cutmix": 0.5}),
    ]
    arms, so_far = [], nothing
    for name, more in steps:
        so_far = {**so_far, **more}
        arms.append(Arm(name, {f"augment.{field}": value for field, value in so_far.items()}))
    return Experiment(
        "augment",
        "What is it worth to change pictures at random?",
        arms,
        "Touvron et al. 2021, table 8: ViTs on few pictures need strong augmentation.",
    )
