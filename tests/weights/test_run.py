"""Run directories."""

import json
import os

import pytest
import torch

import vitrail as vt

TINY = {"image": (8, 12), "patch": 4, "width": 12, "depth": 2, "heads": 3, "classes": 2}


@pytest.mark.parametrize("position", ["learned", "relative", "sincos2d"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_save_then_load_is_the_identity(tmp_path, position, norm):
    model = vt.build("vit", **TINY, position=position, norm=norm, layer_scale=0.1, registers=2)
    images = torch.randn(3, 3, 8, 12)
    model(images)  # moves the running statistics
    vt.save(model, tmp_path / "run")
    loaded = vt.load(tmp_path / "run")
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(images), model.eval()(images))
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_is_kept(tmp_path, dtype):
    model = vt.build("vit", **TINY, position="sincos2d").to(dtype).eval()
    images = torch.randn(1, 3, 8, 12, dtype=dtype)
    vt.save(model, tmp_path)
    assert torch.equal(vt.load(tmp_path)(images), model(images))


def test_a_compiled_model_is_saved_as_what_it_compiles(tmp_path):
    model = vt.build("vit", **TINY)
    vt.save(torch.compile(model, backend="eager"), tmp_path)
    assert vt.load(tmp_path).state_dict().keys() == model.state_dict().keys()


def test_saving_again_replaces(tmp_path):
    first, second = (vt.build("vit", **TINY).eval() for _ in range(2))
    vt.save(first, tmp_path)
    vt.save(second, tmp_path)
    images = torch.randn(1, 3, 8, 12)
    assert torch.equal(vt.load(tmp_path)(images), second(images))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"], (
        "nothing is left aside"
    )


def broken(folder, change):
    vt.save(vt.build("vit", **TINY), folder)
    change(folder)
    with pytest.raises(vt.InputError) as caught:
        vt.load(folder)
    return str(caught.value)


def edit(**changes):
    def change(folder):
        path = folder / "config.json"
        about = json.loads(path.read_text())
        about["model"].update(changes)
        path.write_text(json.dumps(about))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors' is not there"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), "is empty"),
        (lambda f: (f / "model.safetensors").write_bytes(b"7" * 999), "is damaged or no file of weights"),
        (lambda f: os.truncate(f / "model.safetensors", 900), "is damaged or not safetensors"),
        (lambda f: (f / "config.json").unlink(), "needs the run's config.json beside it"),
        (lambda f: (f / "config.json").write_text("{"), "is not valid JSON"),
        (lambda f: (f / "config.json").write_text("[1]"), "is not a table of fields"),
        (edit(widht=3), "field 'widht' is not known; did you mean 'width'?"),
        (edit(width=24), "has of another shape 'embed.class_token'"),
        (edit(depth=3), "lacks 'encoder.2.attention.f.key_value.bias'"),
    ],
)
def test_a_broken_run_gets_a_sentence(tmp_path, change, says):
    assert says in broken(tmp_path, change)


def test_other_mistakes_get_a_sentence(tmp_path):
    with pytest.raises(vt.InputError, match="is not there; give a run directory"):
        vt.load(tmp_path / "nowhere")
    with pytest.raises(vt.InputError, match="format 'vitrial' is not known; did you mean 'vitrail'"):
        vt.save(vt.build("vit", **TINY), tmp_path, format="vitrial")
    (tmp_path / "file").write_text("")
    with pytest.raises(vt.InputError, match="cannot be written"):
        vt.save(vt.build("vit", **TINY), tmp_path / "file")


def test_more_names_than_classes_are_a_mistake(tmp_path):
    vt.save(vt.build("vit-pico/2"), tmp_path / "run", labels=tuple("0123456789"))
    (tmp_path / "run" / "labels.json").write_text(json.dumps(list("0123456789ab")))
    with pytest.raises(vt.InputError, match="has names of 12 classes, and a head for 10"):
        vt.load(tmp_path / "run")


def test_a_run_that_says_no_recipe(tmp_path):
    vt.save(vt.build("vit-pico/2"), tmp_path / "run", labels=tuple("0123456789"))
    (tmp_path / "run" / "recipe.json").write_text('{"recipe": true}')
    with pytest.raises(vt.InputError, match="does not describe a run"):
        vt.run(tmp_path / "run").evaluate()
