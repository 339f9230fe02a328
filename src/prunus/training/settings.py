"""Where and how training runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from prunus.schema import NO_EFFECT, Schema


class EngineSettings(Schema):
    """Devices, precision and the mechanics of a training step."""

    accelerator: Annotated[Literal["auto", "cpu", "cuda", "mps"], NO_EFFECT] = "auto"
    devices: Annotated[Annotated[int, Field(ge=1, le=64)] | Literal["auto"], NO_EFFECT] = 1
    """Processes on each machine; more than one train together by DDP. Bounded, as `workers` are:
    a file of settings may come from others, and not start thousands."""
    nodes: Annotated[int, NO_EFFECT] = Field(default=1, ge=1)
    workers: Annotated[int, NO_EFFECT] = Field(default=0, ge=0, le=256)
    """Processes that decode image files, for each device."""
    compile: Annotated[bool, NO_EFFECT] = False
    """`torch.compile` the model: it takes a minute at first and is then up to 1.8 times as fast."""
    channels_last: Annotated[bool, NO_EFFECT] = False
    """Store images and weights in NHWC order, which makes many convolutions faster."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the forward pass, by autocast; weights and scores are always float32."""
    accumulate: int = Field(default=1, ge=1)
    """Number of parts in which a batch goes through the model one by one, to save memory."""
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of the gradient."""
    sync_batch_norm: bool = False
    """Take batch statistics over all devices (GPUs only); otherwise each uses its own part."""

    def identity(self) -> dict[str, Any]:
        """What determines the result, beyond rounding: neither where it runs nor how fast.

        The number of processes does: each has its own random numbers, and its own part for
        BatchNorm.
        """
        automatic = self.devices == "auto"
        processes = f"{self.nodes} x auto" if automatic else int(self.devices) * self.nodes
        return {**super().identity(), "processes": processes}
