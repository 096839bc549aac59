"""ViTs in names never seen, each beside the PyTorch module that its tensors are of."""

import json
import re
import warnings

import pytest
import torch
from drawing import numbers
from PIL import Image
from processes import vitrail
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from strangers import WIDTH, ByHand, Late, OldViT, OnEncoder, filled
from torch import nn

import vitrail as vt
from vitrail.errors import InputError
from vitrail.weights.reading import read


def alike(ours, model):
    """Whether both answer the same."""
    images = numbers(2, 3, 32, 32).float()
    with torch.no_grad():
        torch.testing.assert_close(ours(images), model(images), rtol=1e-4, atol=1e-4)


def same(model, path, **how):
    """Whether what is read answers as the module does; what was said of it."""
    torch.save(model.state_dict(), path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ours = vt.load(path, **how)
    alike(ours, model)
    return "\n".join(str(one.message) for one in said)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize(("first", "last_norm"), [(True, True), (False, False), (False, True)])
def test_on_pytorch_s_encoder(tmp_path, first, last_norm, activation):
    model = filled(OnEncoder(first=first, last_norm=last_norm, activation=activation))
    how = {"order": "pre" if first else "post"}
    said = same(model, tmp_path / "model.pt", heads=2, activation=activation, **how)
    assert re.search(r"patch +conv_proj_in +32 x 3 x 8 x 8", said)
    assert re.search(r"attention +trunk\.layers\.\{\}\.self_attn\.in_proj +96 x 32", said)
    assert "assumed: order" not in said
    assert "assumed: queries, keys and values follow one another" in said


def test_what_is_assumed_is_said(tmp_path):
    said = same(filled(OnEncoder(heads=1)), tmp_path / "model.pt")
    assert "assumed: order=pre, as a norm comes after the blocks" in said
    assert "assumed: as many heads as are 64 wide" in said
    assert "assumed: activation=gelu" in said
    torch.save(OnEncoder(first=False, last_norm=False).state_dict(), tmp_path / "post.pt")
    weights = read(tmp_path / "post.pt")
    assert weights.config.order == "post"
    assert any("order=post, as no norm comes after the blocks" in note for note in weights.notes)


@pytest.mark.parametrize("unfold", [True, False])
def test_by_hand(tmp_path, unfold):
    said = same(filled(ByHand(unfold)), tmp_path / "model.pt", heads=2)
    assert f"go {'channel by channel' if unfold else 'pixel by pixel'}" in said
    assert re.search(r"outer +stages\.stage\{\}\.contract", said)
    assert re.search(r"position +where", said)


@pytest.mark.parametrize("how", [{}, {"residual": True}, {"normed": True}, {"heads": 1, "head": WIDTH}])
def test_an_older_vit_pytorch(tmp_path, how):
    said = same(filled(OldViT(**how)), tmp_path / "model.pt")
    assert "assumed: the class token answers" in said
    assert ("scaled by the width of a head" in said) == ("residual" in how)
    assert read(tmp_path / "model.pt").format == "vit-pytorch"


NAMES = ("a", "b", "c", "d", "e", "f")
TABLE = """
patch = "tokenise"
position = "where"
norm1 = "stages.stage{}.ln_a"
attention = ["stages.stage{}.a", "stages.stage{}.b", "stages.stage{}.c"]
out = "stages.stage{}.d"
norm2 = "stages.stage{}.ln_b"
inner = "stages.stage{}.e"
outer = "stages.stage{}.f"
norm = "last"
logits = "predict"
"""


def test_names_that_say_nothing_need_a_table(tmp_path):
    model, path, names = filled(ByHand(names=NAMES, bias=True)), tmp_path / "model.pt", tmp_path / "names.toml"
    torch.save(model.state_dict(), path)
    with pytest.raises(InputError, match=r"of maps of one shape no name says which is which: a, b.*--names"):
        vt.load(path)
    names.write_text(TABLE)
    said = same(model, path, heads=2, names=names)
    assert "never seen" not in said
    names.write_text(TABLE.replace('"last"', '"first"'))
    with pytest.raises(InputError, match=r"last\.bias"):
        vt.load(path, names=names)
    for wrong, says in {
        TABLE.replace("norm1", "norm0"): r"part 'norm0' is not known",
        TABLE.replace('out = "stages.stage{}.d"', ""): r"does not say what 'out' is called",
        TABLE.replace('"where"', '"nowhere"'): r"'nowhere', which should be the position, is not in the file",
        "patch": "cannot be read as a table of names",
        'attention = ["a.{}", "b.{}"]': "should be a name, or of attention three",
        TABLE.replace('"last"', '"last.{}"'): r"should have no \{\} in it",
        TABLE.replace("stages.stage{}.d", "stages.d"): r"should have \{\} in it once",
    }.items():
        names.write_text(wrong)
        with pytest.raises(InputError, match=says):
            vt.load(path, names=names)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("layernorm_before", "layernorm_after"),
        ("input_layernorm", "post_attention_layernorm"),
        ("norm_in", "norm_after_attn"),
        ("pre_norm", "mid_norm"),
        ("sa_layer_norm", "output_layer_norm"),
        ("ln_2", "ln_10"),
        ("attention_norm", "ffn_norm"),
        ("zz.attn_norm", "aa.mlp_norm"),
        ("x.pre_attn", "a.pre_mlp"),
    ],
)
def test_which_norm_comes_first(tmp_path, one, other):
    model = filled(OnEncoder(heads=1))
    state = {name.replace("norm1", one).replace("norm2", other): tensor for name, tensor in model.state_dict().items()}
    torch.save(state, tmp_path / "model.pt")
    alike(read(tmp_path / "model.pt").model(), model)


def test_norms_that_no_name_tells_apart(tmp_path):
    state = {
        name.replace("norm1", "scaler").replace("norm2", "shifter"): tensor
        for name, tensor in OnEncoder().state_dict().items()
    }
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError, match="no name says which comes first: scaler, shifter"):
        vt.load(tmp_path / "model.pt")


@pytest.mark.parametrize("change", ["wrapped", "from one", "padded"])
def test_blocks_are_found_however_they_are_counted(tmp_path, change):
    model, state = filled(OnEncoder(heads=1)), {}
    for name, tensor in model.state_dict().items():
        number = re.search(r"layers\.(\d)", name)
        if change == "wrapped":
            name = f"0.{name}"  # noqa: PLW2901
        elif number:
            new = f"layers.{int(number[1]) + 1}" if change == "from one" else f"layer_{int(number[1]):02}"
            name = name.replace(number[0], new)  # noqa: PLW2901
        state[name] = tensor
    torch.save(state, tmp_path / "model.pt")
    alike(read(tmp_path / "model.pt").model(), model)


def test_two_stacks_of_one_size_are_not_chosen_between(tmp_path):
    model = OnEncoder()
    model.again = OnEncoder().trunk
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(
        InputError, match=r"'trunk\.layers\.' and 'again\.layers\.' are two stacks of layers of one size"
    ):
        vt.load(tmp_path / "model.pt")


def test_no_part_is_taken_for_another(tmp_path):
    """A token for masks is no class token, a head no table of positions, a bias of queries no scale."""
    model = ByHand()
    model.mask_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match="has 'mask_token', with no place"):
        vt.load(tmp_path / "model.pt")
    state = OnEncoder(last_norm=False).state_dict()
    state = {name: tensor for name, tensor in state.items() if name not in ("pos", "mlp_head.bias")}
    torch.save({**state, "mlp_head.weight": torch.zeros(10, WIDTH)}, tmp_path / "model.pt")
    with pytest.raises(InputError, match="no table of positions was found"):
        vt.load(tmp_path / "model.pt")
    state = OnEncoder().state_dict()
    state |= {f"trunk.layers.{n}.self_attn.{one}_bias": torch.zeros(WIDTH) for n in range(3) for one in "qv"}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"trunk\.layers\.0\.self_attn\.q_bias"):
        vt.load(tmp_path / "model.pt")


def test_a_norm_in_the_head_comes_after_the_mean(tmp_path):
    assert "normalised after the mean" in same(filled(Late()), tmp_path / "model.pt", heads=2)


def test_the_mean_can_be_said_to_answer(tmp_path):
    class OfPatches(OnEncoder):
        def forward(self, x):
            x = self.conv_proj_in(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
            return self.mlp_head(self.trunk(x)[:, 1:].mean(1))

    assert "answers" not in same(filled(OfPatches(heads=1)), tmp_path / "model.pt", answers="mean")
    assert "the class token answers; change it with answers" in same(filled(OnEncoder(heads=1)), tmp_path / "model.pt")
    torch.save(filled(OldViT()).state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match="answers='mean' cannot be: in weights of vit-pytorch it is 'class'"):
        vt.load(tmp_path / "model.pt", answers="mean")


def test_what_cannot_be_is_said(tmp_path):
    torch.save(OnEncoder(last_norm=False).state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match="order='pre' has a norm after the blocks, and none was found"):
        vt.load(tmp_path / "model.pt", order="pre")
    with pytest.raises(InputError, match="answers 'max' is not known"):
        vt.load(tmp_path / "model.pt", answers="max")
    with pytest.raises(InputError, match="have pre or post"):
        vt.load(tmp_path / "model.pt", order="sandwich")


def test_a_table_has_names_as_the_file_has_them(tmp_path):
    model = filled(ByHand(names=NAMES, bias=True))
    torch.save({f"model.{name}": tensor for name, tensor in model.state_dict().items()}, tmp_path / "model.pt")
    (tmp_path / "names.toml").write_text(re.sub(r'"(\w)', r'"model.\1', TABLE))
    read_back = read(tmp_path / "model.pt", names=tmp_path / "names.toml", heads=2).model()
    alike(read_back, model)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2)), "there are no equal groups"),
        (
            lambda: nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64) for _ in range(2)),
            "the projection of the patches",
        ),
        (lambda: nn.ModuleList(nn.TransformerDecoderLayer(32, 2, 64) for _ in range(2)), "are not those of attention"),
    ],
)
def test_what_is_no_vit_is_said(tmp_path, make, says):
    torch.save(make().state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=f"in no format known here.*{says}"):
        vt.load(tmp_path / "model.pt")


def test_tensors_with_no_place_stop_it(tmp_path):
    model = OnEncoder()
    model.decoder = nn.Linear(WIDTH, 7)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"decoder\.bias"):
        vt.load(tmp_path / "model.pt")


def test_other_formats_keep_their_order(tmp_path):
    vt.save(vt.build("vit-ti/16", classes=2), tmp_path / "model.safetensors", "timm")
    with pytest.raises(InputError, match="weights of timm have pre"):
        vt.load(tmp_path / "model.safetensors", order="post")


def test_pictures_tell_what_no_tensor_says(tmp_path):
    """A run's own model under strange names: of all ways to read it, the true one scores best."""
    digits = load_digits()
    for number in range(700):
        folder = tmp_path / "all" / str(digits.target[number])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[number] * 15).astype("uint8")).save(folder / f"{number}.png")
    shape = {"image": 8, "patch": 2, "channels": 1, "width": 32, "depth": 3, "heads": 4, "hidden": 64, "classes": 10}
    torch.manual_seed(1)
    start, half = tmp_path / "start.safetensors", ((0.5,), (0.5,))
    vt.save(vt.build("vit", **shape, activation="relu"), start, "timm", normalise=half)
    how = {"settings": {"optim.name": "muon", "optim.lr": 2e-3}, "epochs": 30, "quiet": True}
    run = vt.train(tmp_path / "all", weights=start, freeze=False, out=tmp_path / "run", **how)
    assert run.result["accuracy"] > 0.6
    vt.save(run.weights().model(), tmp_path / "known.safetensors", "timm")
    swaps = {
        "blocks.": "body.unit",
        "attn.": "look.",
        "mlp.": "think.",
        "patch_embed.proj": "cut",
        "pos_embed": "places",
    }
    state = {}
    for name, tensor in load_file(tmp_path / "known.safetensors").items():
        for old, new in swaps.items():
            name = name.replace(old, new)  # noqa: PLW2901
        state[name] = tensor
    torch.save(state, tmp_path / "strange.pt")
    words = ("convert", tmp_path / "strange.pt", tmp_path / "out", "--data", tmp_path / "all", "--json")
    ran = vitrail(*words)
    assert ran.returncode == 0, ran.stderr
    model = json.loads(ran.stdout)["model"]
    assert (model["heads"], model["order"], model["activation"]) == (4, "pre", "relu")
    assert "judged by its own head" in ran.stderr
    assert re.search(r"order post, activation gelu +\d", ran.stderr)
    given = vitrail(*words, "--force", "--heads", 4, "--order", "pre", "--activation", "relu")
    assert given.returncode == 1
    assert "everything that could be tried is given already" in given.stderr
