"""Rules by which the scores of CS with a budget move, under several optimisers: one run a call.

    python experiments/score_rules.py --task cifar16 --optimiser adamw --rule method --steps 7020

A run is added to `results/score-rates.json`. `--rule` is `method` (the default, with a budget), the
same with another scale (`fixed`: "constant"; `unscaled`: "none"), or `optimiser` (with its own
rate, or with `--score-lr`); `sgd` or `normalised`, with `--score-lr`, or `geometric`, with
`--constants` (these three: see `score_designs`); or the rival `gmp`.
`score_matrix.py` makes many such runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from module_names import module_names
from score_designs import Geometric, Muon, ScoresBySGD, ScoresNormalised
from torch import Tensor, nn

from prunus import ContinuousSparsification, GradualMagnitudePruning, Method
from prunus.files import write_atomically
from prunus.gates import hard
from prunus.methods.common.schedules import cosine
from prunus.randomness import seed_everything
from prunus.tasks import RECIPES, Task, load_task
from prunus.tasks.data import DataOptions, LoaderOptions
from prunus.tasks.data.text import read_text, text_data
from prunus.tasks.losses import token_cross_entropy
from prunus.tasks.metrics import token_loss
from prunus.tasks.networks.gpt import GPT
from prunus.tasks.networks.vit import VisionTransformer

RESULTS = Path(__file__).parents[1] / "results" / "score-rates.json"
FACTORS = {"method": "init", "fixed": "constant", "unscaled": "none"}
OTHERS = ["optimiser", "sgd", "normalised", "geometric", "gmp"]
RULES = [*FACTORS, *OTHERS]


@dataclass(frozen=True)
class Run:
    """What one run is: these settings, which its line in the results begins with."""

    task: str = "cifar8"
    optimiser: str = "sgd"
    rule: str = "method"
    score_lr: float | None = None
    density: float = 0.05
    steps: int = 1000
    schedule: str = "cosine"
    pretrained: int = 0
    seed: int = 0
    constants: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a run happens: a task, the size of its batches, and the rates of its weights."""

    make: Callable[[str], Task]
    batch: int
    sgd: float
    adamw: float
    muon: float = 0.02
    adamw_decay: float = 0.01

    def weight_decay(self, optimiser: str) -> float:
        return {"sgd": 5e-4, "adamw": self.adamw_decay, "muon": 0.01}[optimiser]


def _named(name: str, **options: int) -> Callable[[str], Task]:
    return lambda data: load_task(name, data, DataOptions(**options))


def small_vit(data: str) -> Task:
    """One block of width 48, on 16 patches of a digit."""
    digits = load_task("digits/vit", data, DataOptions())
    size = {"num_classes": 10, "image_size": 8, "channels": 1, "patch": 2}
    build = lambda: VisionTransformer(**size, width=48, depth=1)  # noqa: E731
    return Task("digits/small-vit", digits.data, build, digits.recipe, select=digits.select)


def small_gpt(data: str) -> Task:  # noqa: ARG001 (the text comes with Python)
    """One block of width 48, on windows of 32 characters of Python's documentation."""
    text = text_data(read_text(Path("data")), DataOptions(), context=32)
    return Task(
        "text/small-gpt",
        text,
        lambda: GPT(vocabulary=len(text.alphabet), context=32, width=48, depth=1),
        RECIPES["tickets"],
        loss=token_cross_entropy,
        metrics=(token_loss,),
        select="linear",
    )


PLACES = {
    "cifar16": Place(_named("cifar10/resnet20", image_size=16), 128, sgd=0.2, adamw=3e-3),
    "cifar8": Place(_named("cifar10/resnet20", image_size=8), 128, sgd=0.2, adamw=3e-3),
    "digits": Place(_named("digits/digits_convnet"), 25, sgd=0.1, adamw=1e-3),
    "char": Place(_named("text/gpt-char"), 32, sgd=0.2, adamw=3e-3, adamw_decay=0.1),
    "vit": Place(_named("digits/vit"), 25, sgd=0.1, adamw=1e-3),
    "encoder": Place(lambda _: module_names(), 32, sgd=0.1, adamw=1e-3),
    "small-convnet": Place(_named("digits/digits_convnet"), 25, sgd=0.1, adamw=1e-3),
    "small-vit": Place(small_vit, 16, sgd=0.05, adamw=3e-3),
    "small-encoder": Place(
        lambda _: module_names(48, depth=1, test_samples=3000), 16, sgd=0.05, adamw=1e-3
    ),
    "small-gpt": Place(small_gpt, 16, sgd=0.2, adamw=3e-3, adamw_decay=0.1),
}


@cache
def task_of(name: str, data: str) -> Task:
    return PLACES[name].make(data)


def make_optimiser(run: Run, model: nn.Module, method: Method | None) -> torch.optim.Optimizer:
    """With Muon's own groups: it has the matrices (and filters), Adam has all else."""
    place = PLACES[run.task]
    lr, decay = getattr(place, run.optimiser), place.weight_decay(run.optimiser)
    mine: list[dict[str, Any]] = [{"params": list(model.parameters())}]
    if run.optimiser == "muon":
        outside = ("words", "tokens", "positions", "head")
        matrices, others = [], []
        for name, p in model.named_parameters():
            (others if p.dim() < 2 or name.startswith(outside) else matrices).append(p)
        mine = [{"params": matrices, "muon": True}, {"params": others, "lr": place.adamw}]
    own = {} if run.score_lr is None or run.rule != "optimiser" else {"score_lr": run.score_lr}
    if method:
        groups = method.param_groups(lr, mine, **own, weight_decay=decay)
    else:
        groups = [{"lr": lr, "weight_decay": decay, **group} for group in mine]
    if run.optimiser == "muon":
        return Muon(groups, lr)
    if run.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr)
    return torch.optim.SGD(groups, lr, momentum=0.9, nesterov=True)


def train(run: Run, task: Task, model: nn.Module, method: Method | None, steps: int) -> None:
    optimiser = make_optimiser(run, model, method)
    highest = [group["lr"] for group in optimiser.param_groups]
    loader = task.data.training(LoaderOptions(PLACES[run.task].batch), seed=run.seed)
    model.train()
    for t in range(steps):
        if t % len(loader) == 0:
            batches = loader.epoch(t // len(loader))
        p = (t + 1) / steps
        factor = min(1.0, 10 * p) if p < 0.1 else cosine(1.0, (p - 0.1) / 0.9)
        for group, rate in zip(optimiser.param_groups, highest, strict=True):
            group["lr"] = rate * (factor if run.schedule == "cosine" else 1.0)
        batch = next(batches)
        loss = task.loss(model(task.inputs(batch)), batch)
        (loss + method.penalty() if method else loss).backward()
        optimiser.step()
        optimiser.zero_grad()
        if method:
            method.step()


@cache
def trained_before(
    task_name: str, optimiser: str, steps: int, seed: int, data: str
) -> dict[str, Tensor]:
    """Weights after so many steps of dense training, with a cosine."""
    task = task_of(task_name, data)
    seed_everything(seed)
    model = task.build()
    train(Run(task_name, optimiser, seed=seed), task, model, None, steps)
    return model.state_dict()


@torch.no_grad()
def measure(task: Task, model: nn.Module) -> float:
    """On the test split."""
    metric, total = task.metrics[0], torch.zeros(())
    model.eval()
    for batch in task.data.evaluation("test", LoaderOptions(512)).epoch(0):
        total = total + metric.measure(model(task.inputs(batch)), batch)
    return metric.finish(total)


def attach(run: Run, task: Task, model: nn.Module) -> Method:
    common = {"steps": run.steps, "target_density": run.density, "select": task.select}
    if run.rule == "gmp":
        return GradualMagnitudePruning(model, **common)
    if run.rule == "geometric":
        return Geometric(model, **common, mask_scale="constant", **run.constants)
    if run.rule in ("sgd", "normalised"):
        design = ScoresBySGD if run.rule == "sgd" else ScoresNormalised
        return design(model, **common, scores="optimiser", rate=run.score_lr)
    if run.rule in FACTORS:
        return ContinuousSparsification(model, **common, mask_scale=FACTORS[run.rule])
    return ContinuousSparsification(model, **common, scores=run.rule)


def result(run: Run, data: str) -> dict[str, Any]:
    """What the run found, with its settings."""
    start, task = time.monotonic(), task_of(run.task, data)
    seed_everything(run.seed)
    model = task.build()
    if run.pretrained:
        model.load_state_dict(
            trained_before(run.task, run.optimiser, run.pretrained, run.seed, data)
        )
    method = attach(run, task, model)
    train(run, task, model, method, run.steps)
    soft = measure(task, model)
    method.commit()
    with hard(model):
        found = {"soft": soft, "hard": measure(task, model)}
    machine = {
        "seconds": round(time.monotonic() - start),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    return {**asdict(run), "metric": task.metrics[0].info.name, **found, **machine}


def recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return found


def record(line: dict[str, Any]) -> None:
    """Add a line to the results."""
    lines = ",\n".join(json.dumps(each) for each in [*recorded(), line])
    write_atomically(RESULTS, f"[\n{lines}\n]\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--task", choices=PLACES)
    parser.add_argument("--optimiser", choices=["sgd", "adamw", "muon"])
    parser.add_argument("--rule", choices=RULES)
    parser.add_argument("--score-lr", type=float, help="of the rules that have one")
    parser.add_argument("--constants", type=json.loads, help="of the geometric rule, as JSON")
    parser.add_argument("--density", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--schedule", choices=["cosine", "constant"])
    parser.add_argument("--pretrained", type=int, help="steps of dense training before")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--data", default="data")
    given = vars(parser.parse_args())
    data = given.pop("data")
    torch.set_num_threads(1)
    line = result(Run(**{k: v for k, v in given.items() if v is not None}), data)
    record(line)
    print(f"soft {line['soft']:.4f}, hard {line['hard']:.4f}")


if __name__ == "__main__":
    main()
