"""Pictures of positions, of each model that has some."""

import vitrail as vt
from vitrail.report.positions import draw_arms

SHAPE = {"image": 12, "patch": 4, "channels": 1, "classes": 3, "width": 16, "depth": 1, "heads": 2}


def test_a_picture_of_each_model_that_has_positions_to_show(tmp_path):
    kinds = ("none", "learned", "learned2d", "relative", "sincos2d", "rotary")
    models = {kind: (kind, vt.build("vit", **SHAPE, position=kind)) for kind in kinds}
    drawn = draw_arms(models, tmp_path)
    assert [one.name for one in drawn] == list(kinds[1:])
    assert len({one.address for one in drawn}) == 5
    assert all(one.address.startswith("data:image/png;base64,iVBOR") for one in drawn)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(f"positions-{kind}.png" for kind in kinds[1:])
