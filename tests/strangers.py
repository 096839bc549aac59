"""ViTs as strangers write them: on PyTorch's encoder, by hand, as vit-pytorch was."""

import torch
from drawing import numbers
from torch import nn

WIDTH, CLASSES = 32, 5


class OnEncoder(nn.Module):
    """As many tutorials have it: PyTorch's encoder, with names of one's own around it."""

    def __init__(self, *, first=True, activation="gelu", last_norm=True, heads=2):
        super().__init__()
        self.conv_proj_in = nn.Conv2d(3, WIDTH, 8, 8)
        self.cls = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos = nn.Parameter(torch.zeros(1, 17, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, heads, 80, dropout=0.0, activation=activation, batch_first=True, norm_first=first
        )
        self.trunk = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        head = nn.Linear(WIDTH, CLASSES)
        self.mlp_head = nn.Sequential(nn.LayerNorm(WIDTH), head) if last_norm else head

    def forward(self, x):
        x = self.conv_proj_in(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.mlp_head(self.trunk(x)[:, 0])


class Layer(nn.Module):
    """Attention written out, with names that a stranger might choose."""

    def __init__(self, names=("q", "k", "v", "merge", "expand", "contract"), heads=2, *, bias=False):
        super().__init__()
        self.names, self.heads = names, heads
        self.ln_a, self.ln_b = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        for name in names[:4]:
            self.add_module(name, nn.Linear(WIDTH, WIDTH, bias=bias))
        self.add_module(names[4], nn.Linear(WIDTH, 80))
        self.add_module(names[5], nn.Linear(80, WIDTH))

    def forward(self, x):
        y = self.ln_a(x)
        q, k, v = (
            self.get_submodule(name)(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in self.names[:3]
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.get_submodule(self.names[3])(y)
        inner, outer = (self.get_submodule(name) for name in self.names[4:])
        return x + outer(nn.functional.gelu(inner(self.ln_b(x))))


class ByHand(nn.Module):
    """A linear map of patches, positions as an embedding, a mean over the patches."""

    def __init__(self, unfold=True, **how):
        super().__init__()
        self.unfold = unfold
        self.tokenise = nn.Linear(3 * 8 * 8, WIDTH)
        self.where = nn.Embedding(16, WIDTH)
        self.stages = nn.ModuleDict({f"stage{number}": Layer(**how) for number in range(3)})
        self.last = nn.LayerNorm(WIDTH)
        self.predict = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        patches = nn.functional.unfold(x, 8, stride=8).transpose(1, 2)  # channel by channel
        if not self.unfold:  # pixel by pixel
            patches = patches.unflatten(-1, (3, 64)).transpose(-1, -2).flatten(-2)
        x = self.tokenise(patches) + self.where.weight
        for layer in self.stages.values():
            x = layer(x)
        return self.predict(self.last(x).mean(1))


class Late(ByHand):
    """With the norm after the mean, in the head."""

    def __init__(self):
        super().__init__()
        self.last = nn.Identity()
        self.predict = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))


class Wrapped(nn.Module):
    """A norm before a part, as vit-pytorch had it before 1.3; ``residual`` as it had it before 0.20."""

    def __init__(self, part):
        super().__init__()
        self.norm, self.fn = nn.LayerNorm(WIDTH), part

    def forward(self, x):
        return self.fn(self.norm(x))


class Residual(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.fn = part

    def forward(self, x):
        return x + self.fn(x)


class OldAttention(nn.Module):
    def __init__(self, heads, head):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(WIDTH, 3 * heads * head, bias=False)
        alone = heads == 1 and head == WIDTH
        self.to_out = nn.Identity() if alone else nn.Sequential(nn.Linear(heads * head, WIDTH), nn.Dropout(0.0))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, dim=-1))
        return self.to_out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class OldFeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 80), nn.GELU(), nn.Dropout(0.0), nn.Linear(80, WIDTH))

    def forward(self, x):
        return self.net(x)


class OldTransformer(nn.Module):
    def __init__(self, heads, head, *, residual):
        super().__init__()
        wrap = (lambda part: Residual(Wrapped(part))) if residual else Wrapped
        pairs = [(wrap(OldAttention(heads, head)), wrap(OldFeedForward())) for _ in range(2)]
        self.layers = nn.ModuleList(nn.ModuleList(pair) for pair in pairs)
        self.residual = residual

    def forward(self, x):
        for parts in self.layers:
            for part in parts:
                x = part(x) if self.residual else x + part(x)
        return x


class OldViT(nn.Module):
    """vit-pytorch's ViT before 1.3."""

    def __init__(self, heads=3, head=64, *, residual=False, normed=False):
        super().__init__()
        self.residual = residual
        if residual:
            self.patch_to_embedding = nn.Linear(192, WIDTH)
        else:
            norms = [nn.LayerNorm(192), nn.LayerNorm(WIDTH)] if normed else []
            self.to_patch_embedding = nn.Sequential(nn.Identity(), *norms[:1], nn.Linear(192, WIDTH), *norms[1:])
        self.pos_embedding = nn.Parameter(torch.zeros(1, 17, WIDTH))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.transformer = OldTransformer(heads, head, residual=residual)
        self.mlp_head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))

    def forward(self, x):
        patches = (
            nn.functional.unfold(x, 8, stride=8).transpose(1, 2).unflatten(-1, (3, 64)).transpose(-1, -2).flatten(-2)
        )
        x = (self.patch_to_embedding if self.residual else self.to_patch_embedding)(patches)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embedding
        return self.mlp_head(self.transformer(x)[:, 0])


def filled(model):
    """With numbers that all differ, and filters of patches that are smooth, as those that learned are."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        if isinstance(model, ByHand):
            smooth = numbers(WIDTH, 3, 1, 1).float() * torch.linspace(-1, 1, 8)[:, None] + torch.linspace(0, 1, 8) ** 2
            flat = smooth.flatten(1) if model.unfold else smooth.permute(0, 2, 3, 1).flatten(1)
            model.tokenise.weight.copy_(flat)
    return model.eval()
