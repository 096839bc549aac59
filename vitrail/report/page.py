"""Pages: one file each, with all they show inside, that ask nothing of the network."""

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image
from torch import Tensor

from vitrail.files import whole

PIXELS = 96  # of a shown picture, at least
SMALL = 192  # and at most, where there are many


def write_page(path: Path, template: str, **fields: Any) -> Path:
    """Fill a template, every name in it escaped, and write it whole."""
    environment = Environment(
        loader=PackageLoader("vitrail.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"percent": "{:.2%}".format, "number": "{:,}".format, "thumbnail": thumbnail}
    page = environment.get_template(template).render(**fields)
    with whole(path) as aside:
        aside.write_text(page, encoding="utf-8", errors="backslashreplace")
    return path


def as_seen(pixels: Tensor) -> Any:
    """(c H W) -> (H W) or (H W 3), as pictures are drawn."""
    return pixels[0].numpy() if len(pixels) == 1 else pixels[:3].permute(1, 2, 0).contiguous().numpy()


def picture(pixels: Tensor) -> str:
    """Bytes (c H W) as the address of an embedded PNG, small ones enlarged by whole numbers."""
    image = Image.fromarray(as_seen(pixels))
    times = max(1, -(-PIXELS // max(image.size)))
    image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    return _embedded(image, "PNG", optimize=True)


def thumbnail(pixels: Tensor) -> str:
    """The same of a picture among many: a photo is made smaller, and a JPEG."""
    if max(pixels.shape[1:]) <= SMALL:
        return picture(pixels)
    image = Image.fromarray(as_seen(pixels))
    image.thumbnail((SMALL, SMALL), Image.Resampling.LANCZOS)
    return _embedded(image, "JPEG", quality=85)


def embedded(path: Path) -> str:
    """A file that is a PNG as the address of an embedded one."""
    return f"data:image/png;base64,{b64encode(path.read_bytes()).decode()}"


def _embedded(image: Image.Image, kind: str, **options: Any) -> str:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{b64encode(buffer.getvalue()).decode()}"
