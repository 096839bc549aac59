"""What torch.save wrote is a pickle, which is a program: what it asks for, before anything reads it."""

import pickletools
import re
import zipfile
from pathlib import Path
from typing import IO

from vitrail.errors import AGAIN, InputError

SAVED = "ask its maker for safetensors"
OPCODES = 2_000_000  # of a pickle: some thirty make a tensor
# What the pickles of weights ask for. PyTorch's own reader knows more, some of which takes any amount of memory
# (bytearray, torch.FloatTensor).
NAMES = re.compile(
    r"collections\.(OrderedDict|Counter)|argparse\.Namespace|_codecs\.encode|(builtins|__builtin__)\.(set|dict|list|complex)"
    r"|torch\.(device|Size|\w+Storage)|torch\._utils\._rebuild_\w+|torch\._tensor\._rebuild_from_type_v2"
    r"|torch\.(nn\.parameter\.)?Parameter|torch\.(b?float|u?int|bool|complex|qu?int|bits|per_)\w*|torch\.serialization\..*"
)


def check_pickles(path: Path, archive: zipfile.ZipFile | None, size: int) -> None:
    """A pickle may ask for any amount of memory in a few bytes, of those who read it too: so what it asks for is looked
    at before it is read, and its length is bounded.
    """
    if archive is not None:
        for entry in archive.infolist():
            if entry.filename.rpartition("/")[2] == "data.pkl":
                with archive.open(entry) as file:
                    _check_opcodes(path, file)
        return
    with path.open("rb") as file:
        for number in range(4):  # a magic number, a version, the system, and what was saved
            try:  # in which numbers say how long the tensors are that follow
                _check_opcodes(path, file, largest=size if number == 3 else None)  # noqa: PLR2004
            except InputError:
                raise
            except ValueError:  # no file of torch's, as its reader will say
                return


def _check_opcodes(path: Path, file: IO[bytes], largest: int | None = None) -> None:
    """One pickle: every name it asks for is one that weights are made of, and no tensor is longer than the file."""
    numbers: list[int] = []  # since the last mark: of the tuple that says where a tensor's numbers are
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
        if count > OPCODES:
            raise InputError(f"{str(path)!r} describes more than any weights do, and is not opened.")
        match opcode.name:
            case "GLOBAL":
                name = str(argument).replace(" ", ".")
                if not NAMES.fullmatch(name):
                    raise more_than_weights(path, name.removeprefix("__builtin__.").removeprefix("builtins."))
            case "STACK_GLOBAL":  # of a later protocol than torch.save writes
                raise InputError(f"{str(path)!r} is a pickle of a later protocol, and is not opened; {SAVED}.")
            case "MARK":
                numbers = []
            case "BINPERSID" if largest is not None and max(numbers, default=0) > largest:
                raise InputError(f"{str(path)!r} asks for {max(numbers):,} numbers and has {largest:,} bytes; {AGAIN}.")
            case _ if isinstance(argument, int):
                numbers.append(argument)


def more_than_weights(path: Path, what: str) -> InputError:
    """The error for a pickle that asks for something by its name that has no business there."""
    return InputError(
        f"{str(path)!r} asks for {what}, which is more than weights are made of and could do harm, and is not opened; "
        f"{SAVED}."
    )
