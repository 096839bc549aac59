"""A finished model of pixels: it draws pictures, or completes them; and what its layers know of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.palette import Palette
from vitrail.decode import Drawing, stream
from vitrail.errors import InputError
from vitrail.families import at_once
from vitrail.families.gpt.model import GPT
from vitrail.families.token_model import TokenModel
from vitrail.lens.vectors import streams_of
from vitrail.tasks.pixels.examples import begun
from vitrail.tasks.task import Trained

TOGETHER = 256  # pictures at a time
CELLS = 4  # of a picture, down and across, whose tokens are one vector each


@dataclass(frozen=True, eq=False)
class Painter:
    """A model, its colours, and the size of its pictures."""

    model: TokenModel
    palette: Palette
    size: tuple[int, int]

    @classmethod
    def of(cls, trained: Trained) -> "Painter":
        """The painter of a run."""
        model = trained.weights.model().float()
        if not isinstance(model, TokenModel) or trained.recipe is None:
            raise InputError(f"{trained.weights.path!r} is no run of pixels; train one with `vitrail train igpt`.")
        return cls(model, Palette.read(trained.folder / "palette.json"), trained.recipe.data.size)

    @torch.inference_mode()
    def draw(self, begun_with: Tensor, drawing: Drawing) -> Tensor:
        """Pictures (m n) that begin with some pixels (m i), and go on as they are drawn."""
        model, count = self.model, self.size[0] * self.size[1]
        if not isinstance(model, GPT):
            raise InputError("a bert says hidden pixels all at once, and draws none after another; train a gpt.")
        begin = torch.full((len(begun_with), 1), len(self.palette))
        prompt, never = torch.cat([begin, begun_with], 1), (len(self.palette), len(self.palette) + 1)
        most = count - begun_with.shape[1]
        new = stream(model.steps, prompt, drawing, room=count, most=most, never=never)
        return torch.cat([begun_with, *(tokens[:, None] for tokens in new)], 1)

    def pictures(self, numbers: Tensor) -> Tensor:
        """Numbers of colours (m n) -> (m c H W), bytes."""
        return self.palette.decode(numbers, self.size)

    @torch.no_grad()
    def features(self, pixels: Tensor) -> Tensor:
        """Pictures (m n) as vectors after the embedding and each layer, (l + 1 m f): ``in_cells``."""
        given = begun(pixels.long(), len(self.palette)) if isinstance(self.model, GPT) else pixels.long()
        some = given.split(at_once(self.model.config, TOGETHER))
        return torch.cat([in_cells(streams_of(self.model, part), self.size) for part in some], 1)


def in_cells(tokens: Tensor, size: tuple[int, int]) -> Tensor:
    """Tokens of pictures (.. n w) as the means of 4 x 4 cells, side by side (.. f): what they are, and about where."""
    laid = tokens.unflatten(-2, size).movedim(-1, -3)  # .. w y x
    cells = (min(CELLS, size[0]), min(CELLS, size[1]))
    return F.adaptive_avg_pool2d(laid.flatten(0, -4), cells).flatten(1).unflatten(0, laid.shape[:-3])


def probe(
    layers: Tensor, labels: Tensor, tested: Tensor, truth: Tensor, decay: Sequence[float] = (0.01, 0.1, 1.0, 10.0)
) -> list[float]:
    """The accuracy of a linear classifier on each layer (l m w), learned from labels (m), on others.

    How much it is held back is chosen by cross-validation on what it learns from (scikit-learn).
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  # a second, for those who measure
    from sklearn.model_selection import GridSearchCV, StratifiedKFold  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    least = int(np.bincount(labels.numpy()).min())
    accuracies = []
    for one, other in zip(layers, tested, strict=True):
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        folds = StratifiedKFold(max(2, min(5, least)))
        search = GridSearchCV(classifier, {"logisticregression__C": list(decay)}, cv=folds)
        accuracies.append(float(search.fit(one.numpy(), labels.numpy()).score(other.numpy(), truth.numpy())))
    return accuracies


def grid(pictures: Tensor, across: int, gap: int = 1) -> Tensor:
    """Pictures (m c H W) side by side in rows, with a line between them, as one (c Y X)."""
    count, channels, height, width = pictures.shape
    down = -(-count // across)
    whole = torch.full((channels, down * (height + gap) + gap, across * (width + gap) + gap), 128, dtype=torch.uint8)
    for number, one in enumerate(pictures):
        y, x = (number // across) * (height + gap) + gap, (number % across) * (width + gap) + gap
        whole[:, y : y + height, x : x + width] = one
    return whole


def write_picture(path: Path, pixels: Tensor, least: int = 480) -> None:
    """Bytes (c H W) as a PNG file, small ones enlarged by whole numbers."""
    from PIL import Image  # noqa: PLC0415

    from vitrail.files import make_folder, whole  # noqa: PLC0415

    array = pixels[0].numpy() if len(pixels) == 1 else pixels[:3].permute(1, 2, 0).contiguous().numpy()
    image = Image.fromarray(array)
    times = max(1, least // max(image.size))
    make_folder(path.parent)
    with whole(path) as aside:
        image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST).save(aside, "PNG")
