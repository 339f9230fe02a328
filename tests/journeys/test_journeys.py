"""A new user's four journeys, as commands that are typed: how many they are, and that they work.

The commands are in the scripts beside this file. Here they are made short.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support.processes import PLAIN

HERE = Path(__file__).parent
MOST = {"demo": 3, "images": 3, "model": 2, "compare": 2}
SHORT = {
    "prunus demo": "--scale smoke --workers 1",
    "prunus prune": "--epochs 2",
    "prunus sweep": "--scale smoke --out runs/compare --workers 1",
    "python -m prunus_runtime serve": "--port 0",
}
SECONDS = 240


def commands(journey: str) -> list[str]:
    lines = (HERE / f"{journey}.sh").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class User:
    """Somebody in a folder of their own, who has installed Prunus."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def types(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """Begins a command; it is ended in the end."""
        extra = next((more for start, more in SHORT.items() if command.startswith(start)), "")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with subprocess.Popen(
            ["bash", "-c", f"exec {command} {extra}"],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": PLAIN},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def does(self, journey: str, *, but_the_last: int = 0) -> str:
        """All commands of a journey, but for some; what they print."""
        printed = ""
        found = commands(journey)
        for command in found[: len(found) - but_the_last]:
            with self.types(command) as process:
                output, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, f"{command}\n{errors}"
            printed += output
        return printed


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.mark.parametrize("journey", MOST)
def test_few_commands_are_enough(journey: str) -> None:
    assert 0 < len(commands(journey)) <= MOST[journey]


def test_all_journeys_are_tested() -> None:
    assert {path.stem for path in HERE.glob("*.sh")} == set(MOST)


def test_the_demo(user: User) -> None:
    assert "Page: demo/report.html" in user.does("demo")
    assert (user.folder / "demo/report.html").exists()


def test_own_images_to_a_served_model(user: User) -> None:
    random = np.random.default_rng(0)
    for number, name in enumerate(("cat", "dog")):
        folder = user.folder / "photos" / name
        folder.mkdir(parents=True)
        for i in range(20):
            pixels = random.integers(100 * number, 100 * number + 100, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.png")
    user.does("images", but_the_last=1)
    with user.types(commands("images")[-1]) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        photo = (user.folder / "photos/cat/0.png").read_bytes()
        connection.request("POST", "/predict", photo, {"Content-Type": "image/png"})
        answer = json.loads(connection.getresponse().read())
    assert set(answer) == {"cat", "dog"}


def test_own_model(user: User) -> None:
    shutil.copy(HERE / "my_model.py", user.folder)
    assert "times smaller" in user.does("model")


def test_comparing_two_methods(user: User) -> None:
    shutil.copy(HERE / "compare.yaml", user.folder)
    printed = user.does("compare")
    assert "\ncs " in printed and "\ngmp " in printed
    assert (user.folder / "runs/compare/report.html").exists()
