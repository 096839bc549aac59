"""Shapes with a name: those of He et al. 2016, table 1, and one for small pictures."""

from vitrail.families.catalogue import presets
from vitrail.families.cnn.config import CNNConfig

for layers, units, unit in (
    (18, (2, 2, 2, 2), "basic"),
    (34, (3, 4, 6, 3), "basic"),
    (50, (3, 4, 6, 3), "bottleneck"),
    (101, (3, 4, 23, 3), "bottleneck"),
    (152, (3, 8, 36, 3), "bottleneck"),
):
    presets.add(f"resnet{layers}")((CNNConfig, {"units": units, "unit": unit}))
for layers, units in ((18, (2, 2, 2, 2)), (34, (3, 4, 6, 3))):
    presets.add(f"plain{layers}")((CNNConfig, {"units": units, "residual": False}))
presets.add("resnet-small")((CNNConfig, {"image": 32, "root": "small", "width": 32, "units": (2, 2, 2)}))
