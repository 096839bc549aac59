"""Weights by name from the Hugging Face hub, through its own library where that is installed."""

from pathlib import Path

from vitrail.errors import InputError

TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")
FILES = ("*.safetensors", "*.safetensors.index.json", "config.json", "preprocessor_config.json", "*.npz", *TOKENIZERS)
OLDER = ("pytorch_model*.bin", "pytorch_model.bin.index.json", "*.pth")


def fetch(name: str) -> Path:
    """The folder of ``hf:owner/name``, from the cache or fetched into it; ``hf:owner/name@revision``: an older one."""
    repository, _, revision = name.removeprefix("hf:").partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InputError(f"{name!r} is not a name on the hub; write hf:owner/name.")
    try:
        import huggingface_hub as hub  # noqa: PLC0415
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled  # noqa: PLC0415
    except ImportError:
        raise InputError(
            f"{name!r} needs huggingface_hub; install it (pip install vitrail[hub]), or download the model's "
            f"folder and give its path."
        ) from None
    try:
        folder = Path(hub.snapshot_download(repository, revision=revision or None, allow_patterns=list(FILES)))
        if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.npz")):
            both = [*FILES, *OLDER]
            folder = Path(hub.snapshot_download(repository, revision=revision or None, allow_patterns=both))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError, TimeoutError):
        raise InputError(
            f"{name!r} is not in the cache, and the hub cannot be reached; download huggingface.co/{repository} on a "
            f"machine that can, and give the folder's path, or set HF_HOME to a cache that has it."
        ) from None
    except (HfHubHTTPError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"{name!r} cannot be had from the hub: {first}") from None
    return folder
