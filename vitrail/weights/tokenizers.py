"""Tokenizers that stand beside weights, and go where those go."""

import shutil
from pathlib import Path

from vitrail.data.vocabulary import BEGIN, END, MASK, PAD, UNKNOWN, Vocabulary
from vitrail.files import whole, write_json
from vitrail.weights.hub import TOKENIZERS

SHARED = "tokenizer.json"
# As HF calls them; what a BERT's text begins and ends with has names of its own.
ROLES = {"pad": PAD, "bos": BEGIN, "eos": END, "unk": UNKNOWN, "mask": MASK, "cls": BEGIN, "sep": END}


def carry(source: Path, target: Path, form: str) -> list[str]:
    """Put the tokenizers beside weights, if there are any, into the folder that these were written to; what cannot go
    along is said.
    """
    folder = source if source.is_dir() else source.parent
    names = {SHARED, *TOKENIZERS} - {"tokenizer_config.json"}
    there = [one for one in sorted(folder.iterdir()) if one.is_file()] if source.exists() else []
    carried = [one for one in there if one.name.endswith(SHARED) or one.name in names]
    if not carried or not target.is_dir():
        return ["its tokenizers stay behind: one file of weights has no place for them"] if carried else []
    if form == "hf" and any(one.name.endswith(f".{SHARED}") for one in carried):
        return ["its tokenizers stay behind: an HF folder has one for both languages, and these are two"]
    for one in carried:
        with whole(target / one.name) as aside:
            shutil.copyfile(one, aside)
    about = folder / "tokenizer_config.json"
    if about.is_file():  # another library's, which says what it is
        with whole(target / about.name) as aside:
            shutil.copyfile(about, aside)
    elif form == "hf":
        words = Vocabulary.read(target / SHARED)  # one of ours, with the tokens where they are said to be
        special = {f"{role}_token": words.tokenizer.id_to_token(token) for role, token in ROLES.items()}
        write_json(target / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **special})
    return []
