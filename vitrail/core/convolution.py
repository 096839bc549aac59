"""A convolution is a restricted self-attention (Cordonnier et al. 2020)."""

import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.masks import Mask
from vitrail.core.positions import Grid
from vitrail.errors import InputError


class ConvolutionAsAttention(nn.Module):
    """A k x k convolution as k^2 heads: head (p, q) looks at the pixel (p, q) away, W_O,h is the filter's slice there.

    The attention is the ordinary one. All that is special is its mask, which lets each head see one relative position;
    the softmax of a single score is 1, so the pattern is exact, and beyond the border is nothing to see, which is 0.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        k, channels, out = convolution.kernel_size[0], convolution.in_channels, convolution.out_channels
        same = {tuple(k // 2 * dilation for dilation in convolution.dilation), "same"}
        plain = convolution.stride == (1, 1) and convolution.groups == 1 and convolution.padding_mode == "zeros"
        if k % 2 == 0 or convolution.kernel_size != (k, k) or convolution.padding not in same or not plain:
            raise InputError(
                f"{convolution} is not a k x k convolution that keeps the size of its image; "
                f"choose an odd kernel, stride 1, one group, padding='same'."
            )
        self.k, self.dilation = k, convolution.dilation
        self.attention = Attention(channels, heads=k * k, head=1, rank=channels, out=out).to(convolution.weight)
        filters = rearrange(convolution.weight, "o c p q -> o (p q c)")
        with torch.no_grad():
            copy = torch.eye(channels).to(filters)
            self.attention.key_value.weight[k * k :] = repeat(copy, "r c -> (h r) c", h=k * k)
            self.attention.out.weight.copy_(filters)
            if convolution.bias is not None:
                self.attention.out.bias.copy_(convolution.bias)

    def forward(self, image: Tensor) -> Tensor:
        """(b c y x) -> (b c' y x)."""
        grid = (image.shape[-2], image.shape[-1])
        tokens = self.attention(rearrange(image, "b c y x -> b (y x) c"), self.mask(grid))
        return rearrange(tokens, "b (y x) c -> b c y x", y=grid[0])

    def mask(self, grid: Grid) -> Mask:
        """Minus infinity but at the one relative position that a head looks at."""
        y, x = torch.meshgrid(*(torch.arange(n) for n in grid), indexing="ij")
        index = torch.stack([y, x], dim=-1).flatten(0, 1)  # n 2
        reach = torch.arange(self.k) - self.k // 2
        offsets = torch.cartesian_prod(reach, reach) * torch.tensor(self.dilation)  # h 2
        target = index[None, :] + offsets[:, None]  # h i 2
        looks = (target[:, :, None] == index).all(-1)  # h i j
        bias = torch.zeros(looks.shape).masked_fill(~looks, -torch.inf)
        return Mask(bias=bias[None].to(self.attention.out.weight))
