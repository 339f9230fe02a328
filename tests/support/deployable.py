"""Small PyTorch models for the tests of deployment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import prunus


class Excitation(nn.Module):
    """Squeeze and excitation with linear layers, as in most code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4), nn.Linear(4, width)

    def forward(self, x: Tensor) -> Tensor:
        n, width = x.shape[:2]
        y = F.adaptive_avg_pool2d(x, 1).view(n, width)
        y = torch.sigmoid(self.fc2(F.relu(self.fc1(y)))).view(n, width, 1, 1)
        return x * y


class Mobile(nn.Module):
    """Depthwise convolutions, squeeze and excitation, and most kinds of activation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.relu6 = nn.ReLU6(inplace=True)
        self.excitation = Excitation(8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.gain = nn.Parameter(torch.rand(8, 1, 1))
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.bn1(self.stem(x)))
        y = self.excitation(self.relu6(self.bn2(self.depthwise(x))))
        x = x + 0.5 * F.silu(self.pointwise(y)) * self.gain - 1.0
        x = torch.cat([x, F.leaky_relu(x, 0.2)], 1)
        x = F.avg_pool2d(F.pad(x, (1, 0, 0, 0)), 2, ceil_mode=True)
        a, b = x.chunk(2, dim=1)
        x = torch.cat([F.gelu(b), a.clamp(-1, 1)[:, :, :, 0:]], dim=1)
        return F.log_softmax(self.fc(self.drop(x.mean((2, 3)))), dim=1)


class Branching(nn.Module):
    """Cannot be captured, because what it does depends on its data."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 1e9 else self.fc(x)


def randomised(model: nn.Module, density: float = 0.2, seed: int = 0) -> nn.Module:
    """The model with batch-norm statistics that matter, and with most weights zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.running_mean, module.bias):
                    tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.5)
                for tensor in (module.running_var, module.weight):
                    tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
        for candidate in prunus.candidates(model):
            weight = candidate.parameter
            weight.mul_(torch.rand(weight.shape, generator=generator) < density)
    return model
