"""Settings of all tests."""

import os

import pytest
import torch

torch.set_num_threads(1)  # tests run in two processes on two cores
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of processes beside them


def pytest_configure(config: pytest.Config) -> None:
    # Not in pyproject.toml: there it would import prunus before its coverage is measured.
    config.addinivalue_line("filterwarnings", "error::prunus.PrunusWarning")
