"""Sparsify in the `Trainer` of transformers, without a subclass of it.

trainer = Trainer(model, args, callbacks=[SparsifyCallback(target_density=0.1)], ...)
trainer.train()
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from prunus.errors import AttachError
from prunus.files import read_file, write_atomically
from prunus.integrations.guest import Guest
from prunus.methods import Method
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.settings import check

TENSORS = "prunus.safetensors"
"""In a checkpoint: what the method remembers that does not fit into `trainer_state.json`."""

_TAKE_APART = (DistributedType.FSDP, DistributedType.DEEPSPEED)


class SparsifyCallback(TrainerCallback, ExportableState):
    """Search for a subnetwork while the Trainer trains; all evaluation is on the binary mask.

    Give it a method that is attached to the model, or the class of one with its settings: by
    default Continuous Sparsification.

    At the end the model is plain again, with zeros in place. The output folder holds it as
    `from_pretrained` reads it, and `ticket.safetensors` beside it.
    """

    def __init__(
        self, method: Method | type[Method] = ContinuousSparsification, **settings: Any
    ) -> None:
        self.guest = Guest(method, settings)
        self._checkpoint: Path | None = None

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        check(
            not args.load_best_model_at_end,
            "load_best_model_at_end=True would bring back the gates of an earlier step, when the "
            "search kept more weights: leave it out",
        )
        check(
            not args.restore_callback_states_from_checkpoint,
            "restore_callback_states_from_checkpoint=True would make this callback anew, without "
            "its method: leave it out, because it restores itself",
        )
        check(
            not args.fsdp and PartialState().distributed_type not in _TAKE_APART,
            "FSDP and DeepSpeed take parameters apart, and gates with them, and this callback does "
            "not know how to put them together: use DDP, or fully_shard in a loop of your own",
        )
        self.guest.attach(kwargs["model"])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        optimizer = kwargs["optimizer"]
        optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate's is a wrapper
        saved = self._saved(args, state) if state.global_step else None
        self.guest.begin(kwargs["model"], state.max_steps, optimizer, saved)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.guest.before_step()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._checkpoint = _folder(args, state)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.guest.method is not None:
            metrics = self.guest.metrics()
            kwargs["logs"].update(metrics)  # for callbacks after this one, which print them
            state.log_history[-1].update(metrics)

    def state(self) -> dict[str, Any]:
        """What the Trainer writes into `trainer_state.json`, the last file of a checkpoint."""
        if self.guest.method is None:
            return {"args": {}, "attributes": {}}
        plain, tensors = _split(self.guest.method.state_dict())
        if tensors and self._checkpoint is not None and self._checkpoint.is_dir():
            data = safetensors.torch.save(tensors)
            write_atomically(self._checkpoint / TENSORS, data)
            plain["tensors"] = {"sha256": hashlib.sha256(data).hexdigest(), "names": list(tensors)}
        return {"args": {}, "attributes": plain}

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        [ticket, _], folder = self.guest.end(), Path(str(args.output_dir))
        if state.is_world_process_zero:
            for part in (kwargs["model"], kwargs.get("processing_class")):
                if part is not None:
                    part.save_pretrained(folder)
            ticket.push_to_hub(folder)  # writes ticket and card, and sends nothing

    def _saved(self, args: TrainingArguments, state: TrainerState) -> dict[str, Any]:
        """The state of the method at the checkpoint that training goes on from."""
        callbacks: Any = state.stateful_callbacks  # as read from trainer_state.json
        content = callbacks.get(type(self).__name__, {}).get("attributes")
        file = _folder(args, state) / TENSORS
        if not content:
            raise AttachError(f"{file.parent} is a checkpoint of a training that did not sparsify")
        if (tensors := content.pop("tensors", None)) is None:
            return dict(content)
        data = read_file(file) if file.is_file() else b""
        if hashlib.sha256(data).hexdigest() != tensors["sha256"]:
            raise AttachError(
                f"{file} is missing, or not of this training: put the checkpoint back"
            )
        loaded = safetensors.torch.load(data)
        return _joined(content, {name: loaded[name] for name in tensors["names"]})


def _folder(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"


def _split(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The state of a method as plain data, and its tensors by `field/name`."""
    plain, tensors = {}, {}
    for field, value in state.items():
        items = value if isinstance(value, Mapping) else {}
        if any(isinstance(item, Tensor) for item in items.values()):
            tensors.update({f"{field}/{name}": item for name, item in items.items()})
        else:
            plain[field] = value
    return plain, tensors


def _joined(plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    state = dict(plain)
    for key, tensor in tensors.items():
        field, _, name = key.partition("/")
        state.setdefault(field, {})[name] = tensor
    return state
