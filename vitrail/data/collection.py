"""From files to pictures in memory: each is tried, and what cannot be used is named and set aside."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from vitrail.data.decode import Header, Size, Unreadable, View, read_header, read_pixels
from vitrail.data.duplicates import near_duplicates
from vitrail.data.listing import Item, Listing
from vitrail.data.pictures import Pictures, part_of, split_rows
from vitrail.errors import InputError
from vitrail.files import reserve, scratch
from vitrail.machine import available_memory
from vitrail.progress import Progress, first_of

T = TypeVar("T")
MEMORY = 2.0  # gigabytes
OBLONG = 1.05  # of one side to the other


@dataclass(frozen=True)
class Aside:
    """A file or a class that is not used, and why."""

    what: str
    why: str
    unreadable: bool = False


@dataclass(frozen=True)
class Found:
    """What is known of pictures before they are decoded."""

    layout: str
    names: tuple[str, ...]
    train: tuple[int, ...]  # of each class, to train on
    held: tuple[int, ...]  # and to measure on
    part: str  # what those to measure on are: validation, where others are left for the end
    left: str  # where those others are
    sizes: tuple[Size, Size, Size]  # of the files: smallest, middle, largest
    grey: bool
    oblong: float = 0.0  # the fraction of the pictures that are no squares
    aside: Sequence[Aside] = ()

    def using(self, fraction: float) -> "Found":
        """With a fraction of each class to train on."""
        return replace(self, train=tuple(part_of(count, fraction) for count in self.train))


@dataclass(frozen=True, eq=False)
class Parts:
    """Pictures to train on and to measure on, what was set aside, and which are in both."""

    train: Pictures
    test: Pictures
    layout: str
    total: int
    aside: list[Aside] = field(default_factory=list)
    held: str = "test"  # what the part to measure on is: validation, where another is left for the end
    left: str = ""  # where that other one is
    from_files: bool = False  # whether each picture is a file of its own
    sizes: tuple[Size, Size, Size] = ((0, 0), (0, 0), (0, 0))  # of the files: smallest, middle, largest

    @property
    def found(self) -> Found:
        """What they are, counted."""
        train, held = (
            tuple(part.labels.bincount(minlength=len(self.train.names)).tolist()) for part in (self.train, self.test)
        )
        channels, height, width = self.train.store.shape[1:]
        return Found(
            self.layout,
            self.train.names,
            train,
            held,
            self.held,
            self.left,
            self.sizes,
            grey=channels == 1,
            oblong=float(height != width),
            aside=self.aside,
        )

    @cached_property
    def near(self) -> list[tuple[int, int, float]]:
        """Pictures to measure on that look almost like one to train on: both numbers, and how much alike."""
        return near_duplicates(self.test, self.train) if self.from_files else []

    @cached_property
    def leaks(self) -> list[tuple[str, str]]:
        """Pictures to measure on that are also trained on, pixel for pixel: (to measure on, to train on)."""
        seen = dict(zip(self.train.digests, self.train.files, strict=True))
        pairs = ((file, seen.get(one)) for file, one in zip(self.test.files, self.test.digests, strict=True))
        return [(file, other) for file, other in pairs if other is not None]


@dataclass(frozen=True, eq=False)
class Survey:
    """The files that open, with their headers; what does not open is set aside already."""

    listing: Listing
    items: list[Item]
    headers: list[Header]
    aside: list[Aside]

    @property
    def names(self) -> tuple[str, ...]:
        """The classes that pictures to train on were found for."""
        return tuple(sorted({item.label for item in self.items}))

    def found(self, test: float, seed: int) -> Found:
        """What the pictures will be, if all of them can be read."""
        train, held = (
            Counter(self.items[number].label for number in numbers) for numbers in _divided(self.items, test, seed)
        )
        sides = [header.size for header in self.headers]
        return Found(
            self.listing.layout,
            self.names,
            tuple(train[name] for name in self.names),
            tuple(held[name] for name in self.names),
            self.listing.held or "test",
            self.listing.left,
            self.sizes,
            self.grey,
            sum(max(size) > OBLONG * min(size) for size in sides) / len(sides),
            self.aside,
        )

    @property
    def grey(self) -> bool:
        """Whether no more than one picture in a hundred has colour."""
        return sum(not header.grey for header in self.headers) <= 0.01 * len(self.headers)

    @property
    def sizes(self) -> tuple[Size, Size, Size]:
        """The smallest, the middle and the largest picture, by area."""
        ordered = sorted((header.size for header in self.headers), key=lambda size: size[0] * size[1])
        return ordered[0], ordered[len(ordered) // 2], ordered[-1]


def survey(listing: Listing, progress: Progress, limit: float = 1.0) -> Survey:
    """Open every file and read its header; with more than a fraction that cannot be read, stop."""
    headers = _each("pictures looked at", lambda item: read_header(item.file), listing.items, progress)
    good = [(item, header) for item, header in zip(listing.items, headers, strict=True) if isinstance(header, Header)]
    bad = [
        Aside(str(item.file), why, unreadable=True)
        for item, why in zip(listing.items, headers, strict=True)
        if isinstance(why, str)
    ]
    _enough(len(good), bad, limit, listing)
    bad += [Aside(str(file), "not in the folder of a class") for file in listing.loose]
    items, aside = _usable([item for item, _ in good], listing)
    kept = set(map(id, items))
    return Survey(listing, items, [header for item, header in good if id(item) in kept], bad + aside)


def collect(
    surveyed: Survey,
    view: View,
    *,
    test: float,
    seed: int,
    limit: float,
    memory: float,
    progress: Progress,
) -> Parts:
    """Decode every picture, and split what is not split yet."""
    listing = surveyed.listing
    everything, bad = _decoded(surveyed.items, view, memory, progress)
    _enough(len(everything), [one for one in surveyed.aside if one.unreadable] + bad, limit, listing)
    items, aside = _usable([surveyed.items[number] for number in everything.rows.tolist()], listing)
    kept = set(map(id, items))
    usable = [n for n, number in enumerate(everything.rows.tolist()) if id(surveyed.items[number]) in kept]
    chosen = everything[torch.tensor(usable)].present()
    train, held = (chosen[torch.tensor(numbers)] for numbers in _divided(items, test, seed))
    named = {one.what for one in surveyed.aside}
    aside = [one for one in aside if one.what not in named]
    return Parts(
        train,
        held,
        listing.layout,
        len(listing.items),
        surveyed.aside + bad + aside,
        listing.held or "test",
        listing.left,
        from_files=True,
        sizes=surveyed.sizes,
    )


def read_items(
    files: Sequence[tuple[str, str]], names: tuple[str, ...], view: View, progress: Progress
) -> tuple[Pictures, list[Aside]]:
    """Pictures by their files and labels, of classes that are known by these names, and what cannot be read of them."""
    pictures, bad = _decoded([Item(Path(file), label) for file, label in files], view, MEMORY, progress)
    return (pictures.among(names) if len(pictures) else pictures), bad


def labelled(listing: Listing, names: tuple[str, ...], view: View, progress: Progress) -> tuple[Pictures, list[Aside]]:
    """Pictures to measure on, of classes that are known by these names: the test part, where there are parts."""
    items = listing.measured
    known = [item for item in items if item.label in names]
    aside = [
        Aside(str(item.file), f"of class {item.label!r}, which the model does not know")
        for item in items
        if item.label not in names
    ]
    pictures, bad = _decoded(known, view, MEMORY, progress)
    if not len(pictures):
        raise InputError(
            f"{listing.layout}: no picture of a class that the model knows can be read:\n{listed(bad + aside)}"
        )
    return pictures.among(names), aside + bad


def _decoded(items: list[Item], view: View, memory: float, progress: Progress) -> tuple[Pictures, list[Aside]]:
    """The pictures that can be read, and what is wrong with the others."""
    store = _store((len(items), view.channels, *view.size), memory)

    def read(numbered: tuple[int, Item]) -> None:
        number, item = numbered
        store[number] = read_pixels(item.file, view.size, view.channels, view.fit)

    answers = _each("pictures read", read, list(enumerate(items)), progress)
    bad = [
        Aside(str(item.file), why, unreadable=True)
        for item, why in zip(items, answers, strict=True)
        if isinstance(why, str)
    ]
    good = [number for number, why in enumerate(answers) if why is None]
    names = tuple(sorted({item.label for item in items}))
    numbers = {name: number for number, name in enumerate(names)}
    labels = torch.tensor([numbers[items[number].label] for number in good], dtype=torch.int64)
    files = [str(items[number].file) for number in good]
    return Pictures(torch.from_numpy(store), torch.tensor(good, dtype=torch.int64), labels, names, files), bad


def _divided(items: Sequence[Item], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """The items to train on and to measure on, by their numbers."""
    if not items[0].part:
        numbers = {name: number for number, name in enumerate(sorted({item.label for item in items}))}
        return split_rows([numbers[item.label] for item in items], list(numbers), fraction, seed)
    train = [number for number, item in enumerate(items) if item.part == "train"]
    return train, [number for number, item in enumerate(items) if item.part != "train"]


def _usable(items: list[Item], listing: Listing) -> tuple[list[Item], list[Aside]]:
    """The pictures of classes that can be trained on and tested, and what is left out."""
    train = Counter(item.label for item in items if item.part in ("train", ""))
    divided = any(item.part for item in items)
    aside = [Aside(f"class {name!r}", "no picture to train on") for name in listing.classes if not train[name]]
    least = 1 if divided else 2
    aside += [
        Aside(f"class {name!r}", "one picture, where one to train on and one to test on are needed")
        for name in listing.classes
        if 0 < train[name] < least
    ]
    kept = [item for item in items if train[item.label] >= least]
    aside += [Aside(str(item.file), "of a class that is set aside") for item in items if train[item.label] < least]
    classes = {item.label for item in kept}
    if len(classes) < 2:  # noqa: PLR2004
        only = f"only one class, {next(iter(classes))!r}" if classes else "no class with enough pictures"
        raise InputError(
            f"the pictures make up {only}; put the pictures of at least two classes in folders of their own."
        )
    if divided and all(item.part == "train" for item in kept):
        raise InputError("no picture is left to test on; look at what the folder or table holds for the test part.")
    return kept, aside


def _enough(good: int, bad: list[Aside], limit: float, listing: Listing) -> None:
    if not listing.items:
        raise InputError(f"{listing.layout}: there is no file in it; add pictures.")
    if not good:
        raise InputError(f"{listing.layout}: none of {len(bad)} files is a picture that can be read:\n{listed(bad)}")
    if len(bad) > limit * (good + len(bad)):
        raise InputError(
            f"{len(bad)} of {good + len(bad)} files cannot be read, more than data.bad={limit:g} allows; mend or "
            f"remove them, or allow more with --set data.bad=0.5:\n{listed(bad)}"
        )


def listed(aside: Sequence[Aside]) -> str:
    """What was set aside, a line each, of the first of it."""
    return "\n".join(f"  {line}" for line in first_of([f"{one.what}: {one.why}" for one in aside]))


def _each(what: str, read: Callable[[T], object], items: Sequence[T], progress: Progress) -> list[object]:
    """What reading each item gives, or why it failed; many at a time, since decoders let other threads run."""

    def tried(item: T) -> object:
        try:
            return read(item)
        except Unreadable as error:
            return str(error)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(progress(what, pool.map(tried, items), len(items)))


def in_memory(size: int, most: float) -> bool:
    """Whether so many bytes of pictures are kept in memory: up to some gigabytes, and a quarter of what is free."""
    free = available_memory()
    return size <= most * 2**30 and (free is None or size <= free / 4)


def _store(shape: tuple[int, ...], memory: float) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Room for pictures: in memory, or in a file without a name that ends with the process."""
    if in_memory(int(np.prod(shape)), memory):
        return np.zeros(shape, np.uint8)
    with tempfile.TemporaryFile(dir=scratch()) as file:
        try:
            reserve(file, int(np.prod(shape)))  # a full disk says so now, not by a signal later
        except OSError as error:
            raise InputError(
                f"{np.prod(shape) / 2**30:,.1f} GB of decoded pictures find no room in {str(scratch())!r}: "
                f"{error.strerror}; make room, train elsewhere, or choose a smaller model.image."
            ) from None
        return np.memmap(file, np.uint8, "w+", shape=shape)
