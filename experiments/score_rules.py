"""Rules by which the scores of CS with a budget move, under several optimisers: one run a call.

    python experiments/score_rules.py --task cifar16 --optimiser adamw --rule method --steps 7020

A run is added to `results/score-rates.json`. `--rule` is `method` or `optimiser`, the two that CS
has (the latter with its own rate, or with `--score-lr`); `geometric`, the rules that were tried on
the way (see `Geometric`); or the rival `gmp`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from module_names import module_names
from torch import Tensor, nn

from prunus import ContinuousSparsification, GradualMagnitudePruning, Method
from prunus.files import write_atomically
from prunus.gates import hard
from prunus.methods.common.budget import move_scores, shift_scores, spread
from prunus.methods.common.competition import EVERYTHING
from prunus.methods.common.schedules import cosine
from prunus.methods.settings import setting
from prunus.randomness import seed_everything
from prunus.tasks import Task, load_task
from prunus.tasks.data import DataOptions, LoaderOptions

RESULTS = Path(__file__).parents[1] / "results" / "score-rates.json"
TASKS: dict[str, tuple[str | Callable[[], Task], DataOptions, int]] = {
    "cifar16": ("cifar10/resnet20", DataOptions(image_size=16), 128),
    "cifar8": ("cifar10/resnet20", DataOptions(image_size=8), 128),
    "digits": ("digits/digits_convnet", DataOptions(), 25),
    "char": ("text/gpt-char", DataOptions(), 32),
    "vit": ("digits/vit", DataOptions(), 25),
    "encoder": (module_names, DataOptions(), 32),
}
"""By name: the task, its data, and the size of a batch."""
RATES = {
    "sgd": {"cifar16": 0.2, "cifar8": 0.2, "digits": 0.1, "char": 0.2, "vit": 0.1, "encoder": 0.1},
    "adamw": {
        "cifar16": 3e-3,
        "cifar8": 3e-3,
        "digits": 1e-3,
        "char": 3e-3,
        "vit": 1e-3,
        "encoder": 1e-3,
    },
    "muon": dict.fromkeys(TASKS, 0.02),
}


class Geometric(ContinuousSparsification):
    """`beta` in units of the spread rises as `first * rise^p * last^max(0, 10p - 9)`, `p = t/T`.

    The gradient of step `t` counts `tilt^p`, with `falls` times half a cosine.
    """

    first: float = setting("`beta` in units of the spread at the start", default=0.1)
    rise: float = setting("how many times it grows", default=200.0)
    last: float = setting("how many times more in the last tenth", default=10.0)
    tilt: float = setting("how much more the last gradient counts than the first", default=1.0)
    falls: bool = setting("whether that falls to zero in the end", default=False)

    def on_step(self) -> None:
        gates, p = list(self.gates.values()), self.t / self.steps
        move_scores(gates, cosine(self.tilt**p, p) if self.falls else self.tilt**p)
        if self.t & (self.t - 1) == 0 or self.t % max(1, self.steps // 200) == 0:
            shift_scores(gates, EVERYTHING.towards(self.targets[0], p / 0.8))
            self._spread = spread(gates)
        beta = self.first * self.rise**p * self.last ** max(0.0, 10 * p - 9)
        for gate in gates:
            gate.temperature.fill_(beta / self._spread)


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for matrices; Adam, at a small rate, for the rest."""

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # noqa: ARG002 (as torch declares it)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                m, v = state["m"], state["v"]
                if p.dim() < 2:
                    m.lerp_(p.grad, 0.1)
                    v.lerp_(p.grad**2, 0.05)
                    m, v = m / (1 - 0.9 ** state["t"]), v / (1 - 0.95 ** state["t"])
                    p.sub_(m / (v.sqrt() + 1e-8), alpha=0.05 * group["lr"])
                    continue
                m.mul_(0.95).add_(p.grad)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                step = _orthogonal((p.grad + 0.95 * m).flatten(1))
                rows, columns = step.shape
                p.sub_(step.view_as(p), alpha=group["lr"] * max(1, rows / columns) ** 0.5)


def _orthogonal(x: Tensor) -> Tensor:
    """About `U V^T` of `x = U S V^T`: five Newton-Schulz iterations."""
    tall = x.shape[0] > x.shape[1]
    x = (x.T if tall else x) / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (2.0315 * a @ a - 4.7750 * a) @ x
    return x.T if tall else x


def make_optimiser(name: str, groups: list[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(groups, lr, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr) if name == "adamw" else Muon(groups, lr)


def train(run: argparse.Namespace, task: Task, model: nn.Module, method: Method | None) -> None:
    lr = RATES[run.optimiser][run.task]
    decay = {"sgd": 5e-4, "adamw": 0.1 if run.task == "char" else 0.01, "muon": 0.01}[run.optimiser]
    plain = [{"params": list(model.parameters()), "lr": lr, "weight_decay": decay}]
    own = {} if run.score_lr is None else {"score_lr": run.score_lr}
    groups = method.param_groups(lr, **own, weight_decay=decay) if method else plain
    optimiser = make_optimiser(run.optimiser, groups, lr)
    highest = [group["lr"] for group in optimiser.param_groups]
    loader = task.data.training(LoaderOptions(TASKS[run.task][2]), seed=run.seed)
    steps = run.steps if method else run.pretrained
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


@torch.no_grad()
def measure(task: Task, model: nn.Module) -> float:
    metric, total = task.metrics[0], torch.zeros(())
    model.eval()
    for batch in task.data.evaluation("test", LoaderOptions(512)).epoch(0):
        total = total + metric.measure(model(task.inputs(batch)), batch)
    return metric.finish(total)


def attach(run: argparse.Namespace, task: Task, model: nn.Module) -> Method:
    common = {"steps": run.steps, "target_density": run.density, "select": task.select}
    if run.rule == "gmp":
        return GradualMagnitudePruning(model, **common)
    if run.rule == "geometric":
        return Geometric(model, **common, **json.loads(run.constants))
    return ContinuousSparsification(model, **common, scores=run.rule)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--task", choices=TASKS, default="cifar8")
    parser.add_argument("--optimiser", choices=RATES, default="sgd")
    rules = ["method", "optimiser", "geometric", "gmp"]
    parser.add_argument("--rule", choices=rules, default="method")
    parser.add_argument("--score-lr", type=float, help="of the rule `optimiser` (default: its own)")
    parser.add_argument("--constants", default="{}", help="of the geometric rule, as JSON")
    parser.add_argument("--density", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--schedule", choices=["cosine", "constant"], default="cosine")
    parser.add_argument("--pretrained", type=int, default=0, help="steps of dense training before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="data")
    run = parser.parse_args()
    name, options, _ = TASKS[run.task]
    task = load_task(name, run.data, options) if isinstance(name, str) else name()
    torch.set_num_threads(1)
    start = time.monotonic()
    seed_everything(run.seed)
    model = task.build()
    if run.pretrained:
        train(run, task, model, None)
    method = attach(run, task, model)
    train(run, task, model, method)
    soft = measure(task, model)
    method.commit()
    with hard(model):
        found = {"soft": soft, "hard": measure(task, model)}
    settings = {k: v for k, v in vars(run).items() if k not in ("data", "constants")}
    settings["constants"] = json.loads(run.constants)
    machine = {
        "seconds": round(time.monotonic() - start),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    line = {**settings, "metric": task.metrics[0].info.name, **found, **machine}
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    write_atomically(RESULTS, json.dumps([*before, line], indent=1) + "\n")
    print(f"soft {found['soft']:.4f}, hard {found['hard']:.4f}")


if __name__ == "__main__":
    main()
