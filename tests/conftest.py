"""What all tests share: fixed seeds, and hypothesis without deadlines, since this machine may be a slow one."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("vitrail", deadline=None, max_examples=25, derandomize=True, print_blob=True)
settings.load_profile("vitrail")


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
