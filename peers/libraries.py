"""The other libraries, imported where there is no build of torchvision for the CPU."""

import torch

# torchvision declares these when its compiled part loads, and cannot be imported without; nothing here calls them.
_operators = torch.library.Library("torchvision", "FRAGMENT")
if not hasattr(torch.ops.torchvision, "nms"):
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import timm  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402
import vit_pytorch  # noqa: E402

__all__ = ["timm", "torchvision", "transformers", "vit_pytorch"]
