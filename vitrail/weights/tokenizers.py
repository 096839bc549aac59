"""Tokenizers that stand beside weights, and go where those go."""

import shutil
from pathlib import Path

from vitrail.data.vocabulary import BEGIN, END, MASK, PAD, SPECIAL, UNKNOWN, Vocabulary
from vitrail.files import whole, write_json

SHARED = "tokenizer.json"
ROLES = {"pad": PAD, "bos": BEGIN, "eos": END, "unk": UNKNOWN, "mask": MASK}  # as HF calls them


def carry(source: Path, target: Path, form: str) -> list[str]:
    """Put the tokenizers beside weights, if there are any, into the folder that these were written to; what cannot go
    along is said.
    """
    folder = source if source.is_dir() else source.parent
    found = sorted(folder.glob(f"*{SHARED}")) if source.exists() else []
    if not found or not target.is_dir():
        return ["its tokenizers stay behind: one file of weights has no place for them"] if found else []
    if form == "hf" and [one.name for one in found] != [SHARED]:
        return ["its tokenizers stay behind: an HF folder has one for both languages, and these are two"]
    for one in found:
        with whole(target / one.name) as aside:
            shutil.copyfile(one, aside)
    if form == "hf":
        Vocabulary.read(target / SHARED)  # which should be one of ours, with the tokens where they are said to be
        names = {f"{role}_token": SPECIAL[token] for role, token in ROLES.items()}
        write_json(target / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    return []
