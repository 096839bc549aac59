"""Where a token stands: added to it once, or to the scores of every attention.

A grid is (y, x), the patches down and across. The tokens are a prefix (the class token, if any) and then the patches,
row by row.
"""

from typing import TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor, nn

from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError
from vitrail.registry import Registry

Grid: TypeAlias = tuple[int, int]
positions: Registry["type[Position]"] = Registry("position")


@positions.add("none")
class Position(nn.Module):
    """x: no positions, so the encoder is equivariant to the order of its input. The base of all others."""

    def __init__(self, grid: Grid, width: int, heads: int, prefix: int = 0) -> None:
        super().__init__()
        self.grid, self.width, self.heads, self.prefix = grid, width, heads, prefix

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """(b n w) -> (b n w), the position of each token added."""
        table = self.table(grid)
        return x if table is None else x + table.to(x.dtype)

    def table(self, grid: Grid) -> Tensor | None:  # noqa: ARG002
        """What is added to the tokens on this grid, (n w), or None."""
        return None

    def sequence(self, x: Tensor, offset: int = 0) -> Tensor:
        """(b n w) -> (b n w), the positions from ``offset`` on added: of a sequence, or of some steps of it."""
        rows = self.along(offset + x.shape[1])
        return x if rows is None else x + rows[offset:].to(x.dtype)

    def along(self, length: int) -> Tensor | None:  # noqa: ARG002
        """What is added to the first tokens of a sequence, (length w), or None."""
        return None

    def on(self, grid: Grid) -> dict[str, Tensor]:  # noqa: ARG002
        """What its parameters would be on another grid, by their names."""
        return {}

    def mask(self, grid: Grid, prefix: int) -> Mask:  # noqa: ARG002
        """What is added to the scores on this grid, behind so many prefix tokens."""
        return NONE


@positions.add("learned")
class Learned(Position):
    """x + E, one learned vector for each token, in raster order (ViT, eq. 1); resampled on another grid."""

    def __init__(self, grid: Grid, width: int, heads: int, prefix: int = 0) -> None:
        super().__init__(grid, width, heads, prefix)
        self.embedding = nn.Parameter(0.02 * torch.randn(prefix + grid[0] * grid[1], width))

    def table(self, grid: Grid) -> Tensor:
        if grid == self.grid:
            return self.embedding
        prefix, patches = self.embedding[: self.prefix], self.embedding[self.prefix :]
        image = resample(rearrange(patches, "(y x) w -> w y x", y=self.grid[0]), grid)
        return torch.cat([prefix, rearrange(image, "w y x -> (y x) w")])

    def along(self, length: int) -> Tensor:
        if length > len(self.embedding):
            raise InputError(
                f"{length} tokens are more than the {len(self.embedding)} that have a learned position; shorten the "
                f"sequence, or choose position='sinusoidal', which has no end."
            )
        return self.embedding[:length]

    def on(self, grid: Grid) -> dict[str, Tensor]:
        return {"embedding": self.table(grid)}


@positions.add("learned2d")
class Learned2d(Position):
    """x + [E_y, E_x], a learned vector of half the width for each row and each column (ViT, appendix D.4)."""

    def __init__(self, grid: Grid, width: int, heads: int, prefix: int = 0) -> None:
        super().__init__(grid, width, heads, prefix)
        _divisible(width, 2, "learned2d")
        self.rows = nn.Parameter(0.02 * torch.randn(grid[0], width // 2))
        self.columns = nn.Parameter(0.02 * torch.randn(grid[1], width // 2))

    def table(self, grid: Grid) -> Tensor:
        rows, columns = self._axes(grid)
        both = torch.cat([rows.expand(-1, *grid), columns.expand(-1, *grid)])
        return _after_prefix(rearrange(both, "w y x -> (y x) w"), self.prefix)

    def along(self, length: int) -> Tensor:  # noqa: ARG002
        raise _of_pictures("learned2d")

    def on(self, grid: Grid) -> dict[str, Tensor]:
        rows, columns = self._axes(grid)
        return {"rows": rows[:, :, 0].T, "columns": columns[:, 0].T}

    def _axes(self, grid: Grid) -> tuple[Tensor, Tensor]:
        rows = resample(rearrange(self.rows, "y w -> w y 1"), (grid[0], 1))
        return rows, resample(rearrange(self.columns, "x w -> w 1 x"), (1, grid[1]))


class Computed(Position):
    """x + E, E a formula: nothing to learn, and any grid is at hand."""

    embedding: Tensor

    def __init__(self, grid: Grid, width: int, heads: int, prefix: int = 0) -> None:
        super().__init__(grid, width, heads, prefix)
        self.register_buffer("embedding", self.formula(grid), persistent=False)

    def table(self, grid: Grid) -> Tensor:
        return self.embedding if grid == self.grid else self.formula(grid).to(self.embedding)

    def formula(self, grid: Grid) -> Tensor:
        """E on a grid, (n w)."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Compute E anew, where a model was made without memory."""
        self.embedding = self.formula(self.grid)


@positions.add("sinusoidal")
class Sinusoidal(Computed):
    """E(t, 2i) = sin(t / 10000^(2i/w)), E(t, 2i+1) = cos(same), t in raster order (Vaswani et al. 2017, 3.5)."""

    def formula(self, grid: Grid) -> Tensor:
        _divisible(self.width, 2, "sinusoidal")
        return self._waves(self.prefix + grid[0] * grid[1])

    def along(self, length: int) -> Tensor:
        stored = self.embedding
        return stored[:length] if length <= len(stored) else self._waves(length).to(stored)

    def _waves(self, length: int) -> Tensor:
        angles = _angles(length, self.width // 2)
        return rearrange([angles.sin(), angles.cos()], "two n w -> n (w two)")


@positions.add("sincos")
class SinCos(Sinusoidal):
    """E = [sin(t f_i), cos(t f_i)], the same waves as above, all sines first: as Marian and fairseq lay them out."""

    def _waves(self, length: int) -> Tensor:
        angles = _angles(length, self.width // 2)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


@positions.add("sincos2d")
class SinCos2d(Computed):
    """E = [sin x, cos x, sin y, cos y], a quarter of the width each, same frequencies (MoCo v3, Chen et al. 2021)."""

    def formula(self, grid: Grid) -> Tensor:
        _divisible(self.width, 4, "sincos2d")
        y, x = (_angles(n, self.width // 4) for n in grid)
        y, x = repeat(y, "y w -> (y x) w", x=grid[1]), repeat(x, "x w -> (y x) w", y=grid[0])
        return _after_prefix(torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=-1), self.prefix)

    def along(self, length: int) -> Tensor:  # noqa: ARG002
        raise _of_pictures("sincos2d")


@positions.add("relative")
class Relative(Position):
    """Scores + B_h(y_i - y_j, x_i - x_j): a learned bias for each head and offset (Liu et al. 2021), the same in every
    layer (Raffel et al. 2020); a prefix token and what looks at it have biases of their own.
    """

    def __init__(self, grid: Grid, width: int, heads: int, prefix: int = 0) -> None:
        super().__init__(grid, width, heads, prefix)
        self.bias = nn.Parameter(0.02 * torch.randn(heads, 2 * grid[0] - 1, 2 * grid[1] - 1))
        self.prefix_bias = nn.Parameter(torch.zeros(heads, 3))  # from the prefix, to the prefix, within it

    def along(self, length: int) -> Tensor:  # noqa: ARG002
        raise _of_pictures("relative")

    def on(self, grid: Grid) -> dict[str, Tensor]:
        return {"bias": resample(self.bias, (2 * grid[0] - 1, 2 * grid[1] - 1)), "prefix_bias": self.prefix_bias}

    def mask(self, grid: Grid, prefix: int) -> Mask:
        rows, columns = grid
        bias = self.on(grid)["bias"]
        y, x = torch.arange(rows, device=bias.device), torch.arange(columns, device=bias.device)
        dy = rearrange(y[:, None] - y + rows - 1, "yi yj -> yi 1 yj 1")
        dx = rearrange(x[:, None] - x + columns - 1, "xi xj -> 1 xi 1 xj")
        patches = rearrange(bias[:, dy, dx], "h yi xi yj xj -> 1 h (yi xi) (yj xj)")
        if not prefix:
            return Mask(bias=patches)
        n = rows * columns
        away, to, within = (rearrange(b, "h -> 1 h 1 1") for b in self.prefix_bias.unbind(1))
        top = torch.cat([within.expand(-1, -1, prefix, prefix), away.expand(-1, -1, prefix, n)], dim=-1)
        return Mask(bias=torch.cat([top, torch.cat([to.expand(-1, -1, n, prefix), patches], dim=-1)], dim=-2))


@positions.add("rotary")
class Rotary(Position):
    """x as it is: queries and keys are turned instead, in every attention, by where they stand, which of patches is in
    raster order (Su et al. 2021).
    """


class Turn(nn.Module):
    """R_t x, of the numbers (x_i, x_i+d/2) as points in planes that are turned by t / 10000^(2i/d), t the place.

    So q_s k_t depends on what both are and on t - s, and on nothing else.
    """

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(b h i d), (b h j d), the queries being the last of the places -> the same, turned."""
        length, width = k.shape[-2:]
        _divisible(width, 2, "rotary")
        angles = _angles(length, width // 2).to(q.device)
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        last = length - q.shape[-2]
        return _turned(q, cos[last:], sin[last:]), _turned(k, cos, sin)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, other = x.chunk(2, dim=-1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


def resample(image: Tensor, size: tuple[int, int]) -> Tensor:
    """(c y x) -> (c *size), bicubic and antialiased, in float32 whatever the type; the same size is left as it is."""
    if tuple(image.shape[-2:]) == size:
        return image
    smooth = F.interpolate(image.float()[None], size=size, mode="bicubic", antialias=True, align_corners=False)
    return smooth[0].to(image.dtype)


def _angles(n: int, frequencies: int) -> Tensor:
    """T / 10000^(i / frequencies), (n frequencies)."""
    t, i = torch.arange(n, dtype=torch.float64), torch.arange(frequencies, dtype=torch.float64)
    return (t[:, None] * 10000.0 ** (-i / frequencies)).to(torch.get_default_dtype())


def _after_prefix(table: Tensor, prefix: int) -> Tensor:
    """Rows of zeros on top: a prefix token, being learned itself, needs no position."""
    return F.pad(table, (0, 0, prefix, 0)) if prefix else table


def _of_pictures(position: str) -> InputError:
    return InputError(f"position={position!r} is for the patches of pictures; choose 'learned' or 'sinusoidal'.")


def _divisible(width: int, parts: int, position: str) -> None:
    if width % parts:
        raise InputError(
            f"width={width} is not divisible by {parts}, which position={position!r} needs; "
            f"choose width={-(-width // parts) * parts} or another position."
        )
