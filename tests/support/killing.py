"""Run as a program: kills a search again and again, and prints where, as JSON.

It is a separate process that forks: importing torch takes longer than the whole search, and a
process that has trained must not fork.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import sklearn.datasets  # noqa: F401 (so that children do not have to)
import torch

from prunus.runs import execute, resolve

KILLS = 20
STEPS_PER_ROUND = 40


def search(out: Path) -> None:
    given = {
        "task": "digits/digits_convnet",
        "method": {"name": "cs", "mask_init": -0.01},
        "rounds": 2,
        "rewind_epoch": 1.5,
        "recipe": {"epochs": 4, "batch_size": 20, "schedule": "cosine", "warmup": 0.5, "ema": 0.9},
        "data": {"train_images": 200},
        "checkpoint_every": 3,
        "out": str(out),
    }
    execute(*resolve("search", given))


def start(out: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        search(out)
        status = 0
    finally:
        os._exit(status)


def position(out: Path) -> int:
    """Steps in the newest checkpoint, over both rounds."""
    newest = max((path.stem for path in out.glob("*/checkpoints/*.pt")), default="0-0")
    stage, step = map(int, newest.split("-"))
    return stage * STEPS_PER_ROUND + step


def kill(child: int, out: Path, at: float, delay: float) -> None:
    """Kill `child` a moment after it reaches a position, or at once if it is already past it."""
    while position(out) < at and not has_ended(child):
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)


def has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main(folder: Path, seed: int) -> None:
    torch.set_num_threads(1)
    _, status = os.waitpid(start(folder / "whole"), 0)
    assert status == 0, "the uninterrupted search failed"

    generator = random.Random(seed)
    out = folder / "killed"
    moments = []
    # One kill somewhere in each twentieth of the run, so that every part of it is hit.
    for number in range(KILLS):
        at = generator.uniform(number, number + 1) / KILLS * 0.95 * 2 * STEPS_PER_ROUND
        child = start(out)
        kill(child, out, at, delay=generator.uniform(0, 0.03))
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"the search ended before kill {number + 1}: {status}"
        moments.append(position(out))
    _, status = os.waitpid(start(out), 0)
    assert status == 0, "the search failed after the last kill"
    print(json.dumps(moments))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
