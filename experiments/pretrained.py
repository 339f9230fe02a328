"""From a trained model: BERT and ViT taken to 10 % of their linear weights, in both Trainers.

    nice -n 10 python experiments/pretrained.py --runs runs/pretrained

The protocol, written down before the first run:

- BERT: 3 layers of width 64 on characters; 64 of a docstring tell which of eight packages of
  Python's library it is from. ViT: 3 layers of width 64 on handwritten digits, patches of 2x2. A
  fifth of the samples is the test set. Both are trained for 400 steps before anything is
  attached.
- Then 200 further steps, a short schedule, in the Trainer of transformers and in that of
  Lightning, AdamW at the same constant rate, in batches of 32, for each of: CS and GMP at their
  defaults; MP, which cuts the trained network in one shot and trains the weights that are left;
  Wanda likewise, after 32 batches; and dense training that simply goes on. CS with
  `mask_scale="constant"` was the default before.
- Reported: accuracy on the test set with the binary mask, and the density, for three seeds.
  Nothing was tuned.

A run that is done has a file in the folder of runs and is not done again. The end writes
`results/pretrained.json`.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import sysconfig
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lightning
import safetensors.torch
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

import prunus
from prunus.files import write_atomically
from prunus.integrations import lightning as for_lightning
from prunus.integrations import transformers as for_transformers
from prunus.methods import Method

RESULTS = Path(__file__).parents[1] / "results" / "pretrained.json"
PACKAGES = (
    "asyncio",
    "email",
    "http",
    "importlib",
    "multiprocessing",
    "tkinter",
    "unittest",
    "xml",
)
DENSITY, SEEDS = 0.1, (1, 2, 3)
METHODS = ("dense", "cs", "cs-constant", "gmp", "mp", "wanda")
DENSE_STEPS, STEPS, BATCH, RATE = 400, 200, 32, 1e-3
SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256,
}  # fmt: skip

Samples = list[dict[str, Tensor]]


@cache
def text() -> Samples:
    library = Path(sysconfig.get_paths()["stdlib"])
    samples = []
    for label, package in enumerate(PACKAGES):
        for path in sorted((library / package).rglob("*.py")):
            if "test" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    words = " ".join((ast.get_docstring(node) or "").split())
                    if len(words) >= 64:
                        tokens = torch.tensor(list(words[:64].encode("ascii", "replace")))
                        samples.append({"input_ids": tokens, "labels": torch.tensor(label)})
    return samples


@cache
def digits() -> Samples:
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 8 - 1
    labels = torch.tensor(data.target)
    return [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]


def bert() -> nn.Module:
    sizes = {"vocab_size": 128, "max_position_embeddings": 64, "num_labels": len(PACKAGES)}
    return BertForSequenceClassification(BertConfig(**SIZES, **sizes))


def vit() -> nn.Module:
    sizes = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
    return ViTForImageClassification(ViTConfig(**SIZES, **sizes))


TASKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Samples]]] = {
    "bert": (bert, text),
    "vit": (vit, digits),
}


class Half(Dataset[dict[str, Tensor]]):
    """The test set, every fifth sample, or the others."""

    def __init__(self, samples: Samples, *, test: bool) -> None:
        self.samples = [s for n, s in enumerate(samples) if (n % 5 == 0) == test]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.samples[index]


class Module(lightning.LightningModule):
    """A model of transformers for Lightning."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        loss: Tensor = self.model(**batch).loss
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=RATE, weight_decay=0.0)


def in_transformers(
    model: nn.Module, data: Samples, sparsify: Any, steps: int, seed: int, folder: Path
) -> None:
    arguments = TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=RATE,
        lr_scheduler_type="constant", seed=seed, use_cpu=True, save_strategy="no",
        logging_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    callbacks = [for_transformers.SparsifyCallback(*sparsify[0], **sparsify[1])] if sparsify else []
    half = Half(data, test=False)
    Trainer(model, arguments, train_dataset=half, callbacks=callbacks).train()


def in_lightning(
    model: nn.Module, data: Samples, sparsify: Any, steps: int, seed: int, folder: Path
) -> None:
    lightning.seed_everything(seed, verbose=False)
    callbacks = [for_lightning.SparsifyCallback(*sparsify[0], **sparsify[1])] if sparsify else []
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=steps, max_epochs=-1, logger=False, default_root_dir=folder,
        callbacks=callbacks, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    loader = DataLoader(Half(data, test=False), batch_size=BATCH, shuffle=True)
    trainer.fit(Module(model), loader)


@torch.no_grad()
def accuracy(model: nn.Module, data: Samples) -> float:
    model.eval()
    hits = total = 0
    for batch in DataLoader(Half(data, test=True), batch_size=256):
        hits += int((model(**batch).logits.argmax(1) == batch["labels"]).sum())
        total += len(batch["labels"])
    return hits / total


def chosen(method: str, model: nn.Module, samples: Samples) -> Any:
    """The arguments of the callback."""
    common: dict[str, Any] = {"target_density": DENSITY, "select": "linear"}
    if method == "dense":
        return None
    if method == "mp":  # cut now, and train what is left
        attached: Method = prunus.MagnitudePruning(model, steps=1, rewind_step=None, **common)
        attached.harden()
        return (attached,), {}
    if method == "wanda":  # sees inputs, cuts, and trains what is left
        attached = prunus.Wanda(model, steps=32, rewind_step=None, **common)
        loader = DataLoader(Half(samples, test=False), batch_size=BATCH)
        with torch.no_grad():
            for _, batch in zip(range(attached.steps), loader, strict=False):
                model(**batch)
                attached.step()
        attached.harden()
        return (attached,), {}
    if method.startswith("cs-"):
        return (prunus.ContinuousSparsification,), {**common, "mask_scale": method[3:]}
    return (prunus.find_method(method),), common


def trained(task: str, seed: int, folder: Path) -> nn.Module:
    """The dense network that all methods begin with."""
    set_seed(seed)
    build, samples = TASKS[task]
    model, file = build(), folder / f"{task}-{seed}.safetensors"
    if not file.exists():
        in_transformers(model, samples(), None, DENSE_STEPS, seed, folder / "trainer")
        write_atomically(file, safetensors.torch.save(model.state_dict()))
    model.load_state_dict(safetensors.torch.load_file(file))
    return model


def run(task: str, trainer: str, method: str, seed: int, folder: Path) -> dict[str, Any]:
    model, samples = trained(task, seed, folder), TASKS[task][1]()
    start, before = time.process_time(), accuracy(model, samples)
    model.train()  # Lightning leaves it as it is
    train = {"transformers": in_transformers, "lightning": in_lightning}[trainer]
    train(model, samples, chosen(method, model, samples), STEPS, seed, folder / "trainer")
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    kept = sum(int(w.count_nonzero()) for w in weights) / sum(w.numel() for w in weights)
    what = {"task": task, "trainer": trainer, "method": method, "seed": seed}
    found = {"before": before, "accuracy": accuracy(model, samples), "kept": kept}
    return {**what, **found, "seconds": round(time.process_time() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=Path, default=Path("runs/pretrained"))
    folder = parser.parse_args().runs
    torch.set_num_threads(1)
    found = []
    for seed in SEEDS:
        for task in TASKS:
            for trainer in ("transformers", "lightning"):
                for method in METHODS:
                    file = folder / f"{task}-{trainer}-{method}-{seed}.json"
                    if not file.exists():
                        result = run(task, trainer, method, seed, folder)
                        write_atomically(file, json.dumps(result) + "\n")
                        print(json.dumps(result), flush=True)
                    found.append(json.loads(file.read_text()))
        about = {"machine": f"{platform.machine()}, one thread, torch {torch.__version__}"}
        content = {**about, "density": DENSITY, "runs": found}
        write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
