"""Models for the tests of the backends, and their outputs in float64 on the CPU."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from torchbridge.hardware import Hardware, probe

VOLTA, TURING, AMPERE, A10G, L4, HOPPER, BLACKWELL = (
    Hardware.nvidia(capability)
    for capability in ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0))
)


def mlp() -> nn.Module:
    """Return the perceptron [B, 128] -> [B, 128] of the original benchmarks."""
    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))


class Residual(nn.Module):
    """A residual block: ReLU of x [B, C, H, W] plus two convolutions with batch norms."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output [B, C, H, W] for x [B, C, H, W]."""
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


def resnet(channels: int = 16, blocks: int = 2) -> nn.Module:
    """Return a ResNet [B, 3, H, W] -> [B, 10] whose batch norms have non-default statistics."""
    stem = [nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    model = nn.Sequential(*stem, *(Residual(channels) for _ in range(blocks)), *head)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.5)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
    return model


class Bottleneck(nn.Module):
    """A bottleneck block: ReLU of the shortcut of x [B, C, H, W] plus three convolutions.

    The convolutions are 1 x 1 and 3 x 3 with `width` channels, and 1 x 1 with 4 * `width` channels,
    each followed by a batch norm.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = (channels, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)
        layers = [normalised(*one) for one in sizes]
        self.layers = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
        same = stride == 1 and channels == 4 * width
        self.shortcut = nn.Identity() if same else normalised(channels, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, 4 * width, H / stride, W / stride] for x [B, C, H, W]."""
        return torch.relu(self.layers(x) + self.shortcut(x))


def normalised(channels: int, to: int, size: int, stride: int) -> nn.Module:
    """Return a convolution without bias, followed by a batch norm."""
    convolution = nn.Conv2d(channels, to, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(to))


def bottleneck_resnet(
    blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000
) -> nn.Module:
    """Return a ResNet of bottlenecks [B, 3, H, W] -> [B, classes]; by default ResNet-50.

    The stride is in the 3 x 3 convolutions, as in torchvision.
    """
    stages, channels = [], width
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        for block in range(count):
            stages.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
            channels = 4 * inner
    stem = [normalised(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(
        *stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


def encoder() -> nn.Module:
    """Return two transformer layers with four heads: [B, S, 32] -> [B, S, 32]."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@torch.no_grad()
def in_float64(model: nn.Module, *inputs: Tensor) -> Tensor:
    """Return the output of a copy of the model in eval mode, in float64 on the CPU.

    Call it before a pass that changes the model in place.
    """
    reference = copy.deepcopy(model).cpu().double().eval()
    wide = [one.cpu().double() if one.is_floating_point() else one.cpu() for one in inputs]
    return reference(*wide)


def nvidia_rules(device: torch.device) -> tuple[Hardware, str | None]:
    """Return the device's hardware and None if it is from NVIDIA.

    Otherwise return the hardware of an L4, and a note that says on which device the test computes.
    """
    found = probe(device)
    if found.vendor == "nvidia":
        return found, None
    return L4, f"no NVIDIA device here: rules of an L4 (sm_89), numbers of {device}"
