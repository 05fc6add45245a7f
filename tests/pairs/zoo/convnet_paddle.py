"""Write the same network the Paddle way: ConvBNLayer with a named activation, functional pools, LayerList."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class ConvBNLayer(nn.Layer):
    """Convolve, normalise and perhaps activate: the brick of PaddleClas."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, act=None, eps=1e-5, momentum=0.9, **conv):
        super().__init__()
        conv.setdefault("padding", (kernel_size - 1) // 2)
        self.conv = nn.Conv2D(in_channels, out_channels, kernel_size, stride=stride, bias_attr=False, **conv)
        self.norm = nn.BatchNorm2D(out_channels, momentum=momentum, epsilon=eps)
        self.act = act

    def forward(self, x):
        x = self.norm(self.conv(x))
        if self.act == "relu":
            x = F.relu(x)
        elif self.act == "leaky":
            x = F.leaky_relu(x, 0.1)
        return x


class ResidualBlock(nn.Layer):
    """Convolve twice beside a shortcut."""

    def __init__(self, in_channels, channels, stride, plan):
        super().__init__()
        self.plan = plan
        first, second = (1, stride) if "stride_moved" in plan else (stride, 1)
        dilation = 1 if "dilation" in plan else 2
        self.short = None
        if stride != 1 or in_channels != channels:
            self.short = ConvBNLayer(in_channels, channels, 1, stride=stride)
        self.conv0 = ConvBNLayer(
            in_channels,
            channels,
            3,
            stride=first,
            act="leaky" if "leaky" in plan else "relu",
            eps=1e-3 if "bn_eps" in plan else 1e-5,
            momentum=0.1 if "bn_momentum" in plan else 0.9,
        )
        self.conv1 = ConvBNLayer(
            channels,
            channels,
            3,
            stride=second,
            padding=dilation,
            dilation=dilation,
            groups=1 if "groups" in plan else 2,
        )
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.conv1(self.conv0(x))
        short = x if self.short is None else self.short(x)
        if "missing_residual" not in self.plan:
            if "detached_residual" in self.plan:
                short = short.detach()
            y = paddle.add(short, y)
        if "missing_final_relu" in self.plan:
            return y
        if "relu_before_add" in self.plan:
            return F.relu(y - short) + short
        return self.relu(y)


class Neck(nn.Layer):
    """Shuffle channels, project, pool, upsample and smooth."""

    def __init__(self, in_channels, plan):
        super().__init__()
        self.plan = plan
        self.lateral = nn.Conv2D(in_channels, 16, 1, bias_attr=False if "missing_bias" in plan else None)
        self.pool = nn.AvgPool2D(3, stride=1, padding=1, exclusive="count_include_pad" not in plan)
        align = "align_corners" in plan
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=align)
        if "nearest" in plan:
            self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.smooth = nn.Conv2D(16, 6, 3, padding=1)

    def forward(self, x):
        b, c, h, w = x.shape
        if "shuffle_order" in self.plan:
            x = x.reshape([b, c // 2, 2, h, w])
        else:
            x = x.reshape([b, 2, c // 2, h, w])
        x = x.transpose([0, 2, 1, 3, 4]).reshape([b, c, h, w])
        return self.smooth(self.up(self.pool(self.lateral(x))))


class ConvNet(nn.Layer):
    """Run a stem, blocks, the neck and a head."""

    def __init__(self, depth, dropout, class_num, plan):
        super().__init__()
        self.plan = plan
        mode = "zeros" if "padding_mode" in plan else "reflect"
        self.stem = ConvBNLayer(3, 8, 3, act="relu", padding_mode=mode)
        if "avg_for_max" in plan:
            self.max_pool = nn.AvgPool2D(3, stride=2, padding=1, exclusive=False)
        else:
            self.max_pool = nn.MaxPool2D(3, stride=2, padding=1, ceil_mode="ceil_mode" in plan)
        self.blocks = nn.LayerList([ResidualBlock(8, 8, 1, Plan())])
        for i in range(1, depth):
            self.blocks.append(ResidualBlock(8 if i == 1 else 16, 16, 2 if i == 1 else 1, plan.block(i)))
        self.neck = Neck(8 if depth == 1 else 16, plan)
        self.drop = nn.Dropout(0.6 if "dropout_p" in plan else dropout)
        self.fc = nn.Linear(6 * 16, class_num)

    def forward(self, x):
        if "channels_reversed" in self.plan:
            x = paddle.flip(x, axis=[1])
        elif "not_normalised" in self.plan:
            x = x * 0.5 + 0.5
        x = self.max_pool(self.stem(x))
        for block in self.blocks:
            x = block(x)
        x = self.neck(x)
        if "pool_max" in self.plan:
            x = F.adaptive_max_pool2d(x, 4)
        else:
            x = F.adaptive_avg_pool2d(x, 4)
        if "flatten_order" in self.plan:
            x = x.transpose([0, 2, 3, 1])
        return self.fc(self.drop(x.flatten(1)))


def build(plan: Plan, *, depth=2, dropout=0.0, classes=5) -> nn.Layer:
    """Return the network with the plan's faults."""
    model = ConvNet(depth, dropout, classes, plan)
    if "bn_frozen" in plan:
        model.blocks[1].conv1.norm._use_global_stats = True
    return model
