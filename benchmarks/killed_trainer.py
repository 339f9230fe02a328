"""A short search in the Trainer of transformers or Lightning, to be killed and started again.

    python benchmarks/killed_trainer.py transformers --out folder

It goes on from the last checkpoint in the folder, by the Trainer's own means.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Sentences(Dataset[dict[str, Tensor]]):
    """Sixteen tokens that count up from a random one, for each number."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (torch.arange(16) + 5 * index) % 32
        return {"input_ids": tokens, "labels": tokens}


def with_transformers(out: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    from prunus.integrations.transformers import SparsifyCallback

    set_seed(0)
    sizes = {"vocab_size": 32, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))  # with dropout
    arguments = TrainingArguments(
        str(out), num_train_epochs=5, per_device_train_batch_size=8, learning_rate=1e-2,
        save_steps=3, save_total_limit=2, logging_steps=5, use_cpu=True, report_to="none",
        disable_tqdm=True,
    )  # fmt: skip
    sparsify = SparsifyCallback(target_density=0.1, rewind_step=4)
    trainer = Trainer(model, arguments, train_dataset=Sentences(), callbacks=[sparsify])
    trainer.train(resume_from_checkpoint=any(whole_checkpoints(out)))


def whole_checkpoints(out: Path) -> list[Path]:
    """Those that the Trainer had finished, after removing the one that it had not."""
    found = []
    for checkpoint in out.glob("checkpoint-*"):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text())  # written last
            found.append(checkpoint)
        except (OSError, json.JSONDecodeError):
            rmtree(checkpoint)
    return found


def with_lightning(out: Path) -> None:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from prunus.integrations.lightning import SparsifyCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    lightning.seed_everything(0)
    module = Module()
    x = torch.randn(128, 16)
    data = TensorDataset(x, (x @ torch.randn(16, 4)).argmax(1))
    # Lightning saves no random state: the order of an epoch must follow from its number.
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=1, rank=0)
    checkpoints = ModelCheckpoint(out / "checkpoints", save_last=True)
    sparsify = SparsifyCallback(target_density=0.2, select="linear", rewind_step=4)
    trainer = lightning.Trainer(
        max_epochs=12, callbacks=[sparsify, checkpoints], accelerator="cpu", logger=False,
        default_root_dir=out, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    last = out / "checkpoints" / "last.ckpt"
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    trainer.fit(module, loader, ckpt_path=last if last.exists() else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("trainer", choices=["transformers", "lightning"])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    (with_transformers if arguments.trainer == "transformers" else with_lightning)(arguments.out)


if __name__ == "__main__":
    main()
