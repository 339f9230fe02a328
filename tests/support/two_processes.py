"""Run as a program: the same training in one process or in two; each writes what it found."""

import sys
from pathlib import Path

import torch

import prunus
from prunus.tasks.data import Batches
from prunus.tasks.recipes import Recipe
from prunus.training import Engine, EngineSettings, Trainer
from support.small import batches, network


def main(folder: Path, devices: int) -> None:
    torch.set_num_threads(1)
    engine = Engine(EngineSettings(accelerator="cpu", devices=devices, accumulate=2, clip=1.0))
    model = engine.prepare(network())
    loader = batches(engine)
    recipe = Recipe(epochs=2, batch_size=8, lr=0.05)
    method = prunus.ContinuousSparsification(
        model, steps=10, mask_init=0.005, rewind_step=3, final_temperature=50, penalty=1e-4
    )
    losses: list[float] = []

    def train() -> Trainer:
        trainer = Trainer(engine, model, loader, recipe, method=method)
        losses.extend(trainer.mean_loss() for _ in trainer.steps() if trainer.at_epoch_end)
        return trainer

    masks = []
    for _ in range(2):
        train()
        masks.append(dict(method.end_round()))
    method.harden()
    trainer = train()
    # One image too many: the last batch has nothing for the first process.
    images = torch.arange(33 * 36).remainder(256).to(torch.uint8).view(33, 1, 6, 6)
    labels = torch.arange(33) % 3
    evaluation = Batches(images, labels, engine.loader_options(32), mean=[0.5], std=[0.3])
    content = {
        "rank": engine.rank,
        "masks": masks,
        "computed": {n: model[int(n.split(".")[0])].weight.detach() for n in masks[0]},
        "weights": dict(method.ticket("current").weights),
        "rewind": dict(method.ticket().weights),
        "losses": losses,
        "accuracy": engine.measure(trainer.module, evaluation)["accuracy"],
        "highest": engine.highest(engine.rank),
        "gathered": engine.gather(f"rank {engine.rank}"),
        "first": engine.first("rank 1" if engine.rank == 1 else None),
        "none": engine.first(None),
        "from_main": engine.from_main(f"rank {engine.rank}"),
        "meets": [step for step in range(1, 31) if engine.meets_after(step)],
    }
    torch.save(content, folder / f"{devices}-{engine.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
