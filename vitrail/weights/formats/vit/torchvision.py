"""torchvision."""

from typing import Any

from torch import Tensor

from vitrail.families.vit.config import ViTConfig
from vitrail.weights.files import Tensors
from vitrail.weights.formats.base import formats
from vitrail.weights.formats.vit.base import IMAGENET, ViTFormat
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import Names
from vitrail.weights.formats.vit.shape import Known


@formats.add("torchvision")
class Torchvision(ViTFormat):
    """torchvision's VisionTransformer."""

    name = "torchvision"
    names = Names(
        patch="conv_proj",
        class_token="class_token",
        position="encoder.pos_embedding",
        norm1="encoder.layers.encoder_layer_{}.ln_1",
        attention=("encoder.layers.encoder_layer_{}.self_attention.in_proj",),
        out="encoder.layers.encoder_layer_{}.self_attention.out_proj",
        norm2="encoder.layers.encoder_layer_{}.ln_2",
        inner="encoder.layers.encoder_layer_{}.mlp.0",
        outer="encoder.layers.encoder_layer_{}.mlp.3",
        norm="encoder.ln",
        logits="heads.head",
        prelogits="heads.pre_logits",
    )

    def understand(self, tensors: Tensors, hints: Hints) -> Known:  # noqa: ARG002
        known = Known(dict(tensors), normalise=IMAGENET)
        for name in list(known.tensors):
            known.rename(
                name,
                name.replace(".in_proj_", ".in_proj.")
                .replace(".mlp.linear_1.", ".mlp.0.")  # before torchvision 0.13
                .replace(".mlp.linear_2.", ".mlp.3."),
            )
        return known

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:
        square = (config.image,) if config.size[0] == config.size[1] else ()
        classes = (config.classes,) if config.classes else ()
        return {
            "pool": ("class",),
            "bias": (True,),
            "head": (None,),
            "channels": (3,),
            "activation": ("gelu",),
            "image": square,
            "classes": classes,
        }

    def finish(self, tensors: dict[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:  # noqa: ARG002
        return {name.replace(".in_proj.", ".in_proj_"): tensor for name, tensor in tensors.items()}
