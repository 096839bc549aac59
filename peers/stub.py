"""Lets torchvision be imported where there is no build of it for the CPU; timm needs it too.

torchvision declares these operators when its compiled part loads, and cannot be imported without; nothing calls them.
"""

import torch

_operators = torch.library.Library("torchvision", "FRAGMENT")
if not hasattr(torch.ops.torchvision, "nms"):
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
