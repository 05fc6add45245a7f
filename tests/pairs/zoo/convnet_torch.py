"""Write a small ResNet with an FPN-like neck the torchvision way: modules in attributes, in-place relu."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class BasicBlock(nn.Module):
    """Convolve twice beside a shortcut; the second convolution is dilated and grouped."""

    def __init__(self, inplanes, planes, stride, plan):
        super().__init__()
        self.plan = plan
        first, second = (1, stride) if "stride_moved" in plan else (stride, 1)
        dilation = 1 if "dilation" in plan else 2
        groups = 1 if "groups" in plan else 2
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=first, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(
            planes,
            eps=1e-3 if "bn_eps" in plan else 1e-5,
            momentum=0.9 if "bn_momentum" in plan else 0.1,
        )
        self.relu = nn.ReLU(inplace=True)
        if "leaky" in plan:
            self.relu = nn.LeakyReLU(0.1, inplace=True)
        self.conv2 = nn.Conv2d(
            planes, planes, 3, stride=second, padding=dilation, dilation=dilation, groups=groups, bias=False
        )
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if "missing_residual" not in self.plan:
            if "detached_residual" in self.plan:
                identity = identity.detach()
            out = out + identity
        if "missing_final_relu" in self.plan:
            return out
        if "relu_before_add" in self.plan:
            return F.relu(out - identity) + identity
        return F.relu(out)


class Shuffle(nn.Module):
    """Interleave the channels of two groups, as ShuffleNet does."""

    def __init__(self, groups, plan):
        super().__init__()
        self.groups = groups
        self.plan = plan

    def forward(self, x):
        b, c, h, w = x.shape
        if "shuffle_order" in self.plan:
            return x.view(b, c // self.groups, self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)
        return x.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)


class ConvNet(nn.Module):
    """Run a stem, stages of blocks, a pooled and upsampled neck, and a head."""

    def __init__(self, depth, dropout, classes, plan):
        super().__init__()
        self.plan = plan
        self.conv1 = nn.Conv2d(
            3, 8, 3, padding=1, padding_mode="zeros" if "padding_mode" in plan else "reflect", bias=False
        )
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        if "avg_for_max" in plan:
            self.maxpool = nn.AvgPool2d(3, stride=2, padding=1)
        else:
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1, ceil_mode="ceil_mode" in plan)
        blocks = [BasicBlock(8, 8, 1, Plan())]
        for i in range(1, depth):
            blocks.append(BasicBlock(8 if i == 1 else 16, 16, 2 if i == 1 else 1, plan.block(i)))
        self.layer1 = nn.Sequential(*blocks)
        width = 8 if depth == 1 else 16
        self.shuffle = Shuffle(2, plan)
        self.lateral = nn.Conv2d(width, 16, 1, bias="missing_bias" not in plan)
        self.avgpool = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad="count_include_pad" in plan)
        self.upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners="align_corners" in plan)
        if "nearest" in plan:
            self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.smooth = nn.Conv2d(16, 6, 3, padding=1)
        self.dropout = nn.Dropout(0.6 if "dropout_p" in plan else dropout)
        self.fc = nn.Linear(6 * 16, classes)

    def train(self, mode=True):
        super().train(mode)
        if "bn_frozen" in self.plan:
            self.layer1[1].bn2.eval()
        return self

    def forward(self, x):
        if "channels_reversed" in self.plan:
            x = x.flip(1)
        elif "not_normalised" in self.plan:
            x = x * 0.5 + 0.5
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.shuffle(self.layer1(x))
        x = self.lateral(x)
        x = self.avgpool(x)
        x = self.smooth(self.upsample(x))
        if "pool_max" in self.plan:
            x = F.adaptive_max_pool2d(x, 4)
        else:
            x = F.adaptive_avg_pool2d(x, 4)
        if "flatten_order" in self.plan:
            x = x.permute(0, 2, 3, 1)
        x = torch.flatten(x, 1)
        x = self.dropout(x)
        return self.fc(x)


def build(plan: Plan, *, depth=2, dropout=0.0, classes=5) -> nn.Module:
    """Return the network with the plan's faults; inputs are (batch, 3, 16, 16)."""
    return ConvNet(depth, dropout, classes, plan)
