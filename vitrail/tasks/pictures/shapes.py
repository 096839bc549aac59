"""The shape of a model from scratch, chosen from the pictures around the fields that are given."""

from typing import TYPE_CHECKING, Any

from vitrail.families import known_as
from vitrail.families.cnn.config import CNNConfig
from vitrail.tasks.task import Choice

if TYPE_CHECKING:
    from vitrail.tasks.pictures.choices import Facts

SMALL, MEDIUM = 3_000, 30_000  # pictures
TINY = 40  # pixels
SEEN = 64  # pixels of a side that larger pictures are seen in
FULL = 1_024  # numbers of a picture, at most, that a full covariance is found for


def shape(model: dict[str, Any], facts: "Facts") -> list[Choice]:
    """What a model of a family leaves open; a preset leaves nothing open but what pictures it is given."""
    name = model.get("name", "vit")
    chosen = {"vit": _vit, "cnn": _cnn, "gaussian": _gaussian, "linear": _pictures}.get(name)
    if chosen is not None:
        return chosen(model, facts)
    return _pictures(model, facts) if issubclass(known_as(name)[0], CNNConfig) else []


def _sizes(facts: "Facts") -> str:
    return f"pictures of {facts.size[0]} x {facts.size[1]} pixels"


def _few(facts: "Facts") -> str:
    return f"{facts.pictures:,} pictures to train on"


def _channels(facts: "Facts") -> Choice:
    return Choice("model.channels", 1 if facts.grey else 3, "grey" if facts.grey else "colour")


def _side(given: dict[str, Any], usual: int) -> int:
    image = given.get("image", usual)
    return min(image) if isinstance(image, list | tuple) else int(image)


def _vit(given: dict[str, Any], facts: "Facts") -> list[Choice]:
    m = facts.pictures
    side = _side(given, min(facts.size) if min(facts.size) <= TINY else SEEN)
    patch = given.get("patch", 2 if side <= 12 else 4 if side <= TINY else 8 if side <= 2 * 64 else 16)  # noqa: PLR2004
    width, depth = (64, 4) if m < SMALL else (96, 6) if m < MEDIUM else (128, 6)
    width = given.get("width", width)
    heads = next((heads for heads in range(max(1, width // 32), 0, -1) if width % heads == 0), 1)
    convolutions = patch > 2 and patch & (patch - 1) == 0  # noqa: PLR2004
    return [
        Choice("model.name", "vit", "the family"),
        Choice("model.image", max(patch, side // patch * patch), _sizes(facts)),
        Choice("model.patch", patch, _sizes(facts)),
        _channels(facts),
        Choice("model.stem", *_stem(patch, convolutions=convolutions)),
        Choice("model.width", width, _few(facts)),
        Choice("model.depth", depth, _few(facts)),
        Choice("model.heads", heads, f"width {width}"),
        Choice("model.hidden", 2 * width, f"width {width}"),
        Choice("model.drop_path", 0.1 if given.get("depth", depth) > 4 else 0.0, _few(facts)),  # noqa: PLR2004
    ]


def _stem(patch: int, *, convolutions: bool) -> tuple[str, str]:
    if not convolutions:
        return "patch", f"patches of {patch}"
    return "early", f"patches of {patch}, learned sooner by convolutions; for `convert` to other formats, choose patch"


def _cnn(given: dict[str, Any], facts: "Facts") -> list[Choice]:
    side = _side(given, min(facts.size) if min(facts.size) <= TINY else SEEN)
    width, units = (16, (2, 2, 2)) if facts.pictures < SMALL else (32, (2, 2, 2))
    small = side <= 2 * SEEN
    return [
        *_pictures(given, facts),
        Choice("model.root", "small" if small else "large", f"pictures of {side} pixels"),
        Choice("model.width", width, _few(facts)),
        Choice("model.units", list(units if small else (2, 2, 2, 2)), _few(facts)),
    ]


def _pictures(given: dict[str, Any], facts: "Facts") -> list[Choice]:
    side = _side(given, min(facts.size) if min(facts.size) <= TINY else SEEN)
    return [Choice("model.image", side, _sizes(facts)), _channels(facts)]


def _gaussian(given: dict[str, Any], facts: "Facts") -> list[Choice]:
    """Pictures so small that their covariance can be found; of one channel, unless they are asked for."""
    full, channels = given.get("covariance", "shared") != "diagonal", given.get("channels", 1)
    most = int((FULL / channels) ** 0.5) if full else SEEN
    side = min(*facts.size, most)
    why = f"; a covariance of at most {FULL:,} numbers of a picture" * (full and side < min(facts.size))
    return [
        Choice("model.image", side, f"{_sizes(facts)}{why}"),
        Choice("model.channels", 1, "grey, since colours say little more here for three times the numbers"),
    ]
