"""What speaks for an answer, pixel by pixel, in models without attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families.cnn.model import CNN
from vitrail.families.gaussian.model import Gaussian
from vitrail.families.linear.model import Linear
from vitrail.families.picture_model import PictureModel


@dataclass(frozen=True, eq=False)
class Evidence:
    """Where an answer comes from: for a class, against another where the map is of a comparison."""

    label: int
    other: int | None
    probabilities: Tensor  # (classes)
    method: str
    values: Tensor  # (y x), of places or of pixels; above 0 it speaks for the class
    about: str
    unit: str


def evidence(model: PictureModel, image: Tensor, label: int | None = None) -> Evidence:
    """The evidence for a class of one picture (1 c H W), the likeliest unless another is given."""
    if len(image) != 1:
        raise InputError(f"{len(image)} pictures were given; explain them one at a time.")
    with torch.no_grad():
        probabilities = model(image)[0].double().softmax(0)
    if not probabilities.isfinite().all():
        raise InputError("the model's answer to this picture is not finite, and cannot be explained.")
    label = int(probabilities.argmax()) if label is None else label
    if isinstance(model, CNN):
        about = "Places whose features push the answer up, in the last stage (Grad-CAM, Selvaraju et al. 2017)."
        return Evidence(label, None, probabilities, "gradcam", gradcam(model, image, label), about, "logits")
    others = probabilities.clone()
    others[label] = -1
    other = int(others.argmax())
    if isinstance(model, Gaussian):
        with torch.no_grad():
            values = model.by_pixel(model.stream(image)[0, 0], label, other)
        about = "How much each pixel makes the picture likelier under one class than under the next likeliest."
        return Evidence(label, other, probabilities, "likelihood", _map(values, image), about, "nats")
    if isinstance(model, Linear):
        weights = model.head.logits.weight.detach()
        values = (weights[label] - weights[other]) * image.flatten()
        about = "What each pixel adds to the logit of one class, less that of the next likeliest."
        return Evidence(label, other, probabilities, "contribution", _map(values, image), about, "logits")
    raise InputError(f"a {type(model).__name__} is explained by its attention.")


def gradcam(model: CNN, image: Tensor, label: int) -> Tensor:
    """relu(sum_k a_k A_k), A the last maps and a_k the mean over places of d logit / d A_k; (y x), of all places."""
    with torch.enable_grad():
        maps = model.maps(image).detach().requires_grad_()
        logit = model.head(maps.mean((2, 3)))[0, label]
        (gradient,) = torch.autograd.grad(logit, maps)
    weights = gradient.mean((2, 3), keepdim=True)
    return F.relu((weights * maps.detach()).sum(1))[0]


def _map(values: Tensor, image: Tensor) -> Tensor:
    """Numbers of a picture (d) as a map (y x), its channels together."""
    return values.reshape(image.shape[1:]).sum(0)
