"""What the comparisons with other libraries share."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "peers")]

import stub  # noqa: E402, F401


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
