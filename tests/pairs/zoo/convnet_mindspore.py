"""Write the same network the MindSpore way: a padding cell before a valid convolution, ``pad_mode``, SequentialCell."""

from __future__ import annotations

from mindspore import nn, ops

from .plan import Plan

__all__ = ["build"]


class PaddedConv(nn.Cell):
    """Pad by reflection, which MindSpore's convolutions cannot, and convolve."""

    def __init__(self, in_channels, out_channels, mode):
        super().__init__()
        self.pad = nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1)), mode=mode)
        self.conv = nn.Conv2d(in_channels, out_channels, 3, pad_mode="valid")

    def construct(self, x):
        return self.conv(self.pad(x))


class BasicBlock(nn.Cell):
    """Convolve twice beside a shortcut; the second convolution is dilated and grouped."""

    def __init__(self, in_channels, channels, stride, plan):
        super().__init__()
        self.plan = plan
        first, second = (1, stride) if "stride_moved" in plan else (stride, 1)
        dilation = 1 if "dilation" in plan else 2
        # "same" pads a stride of one evenly, and a stride of two after the image alone.
        even = {"pad_mode": "pad", "padding": 1} if first > 1 and "pad_same" not in plan else {"pad_mode": "same"}
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=3, stride=first, **even)
        self.bn1 = nn.BatchNorm2d(
            channels,
            eps=1e-3 if "bn_eps" in plan else 1e-5,
            momentum=0.1 if "bn_momentum" in plan else 0.9,
        )
        self.act = nn.LeakyReLU(0.1) if "leaky" in plan else nn.ReLU()
        self.conv2 = nn.Conv2d(
            channels,
            channels,
            kernel_size=3,
            stride=second,
            pad_mode="pad",
            padding=dilation,
            dilation=dilation,
            group=1 if "groups" in plan else 2,
        )
        self.bn2 = nn.BatchNorm2d(channels, use_batch_statistics=False if "bn_frozen" in plan else None)
        self.down_sample = None
        if stride != 1 or in_channels != channels:
            self.down_sample = nn.SequentialCell(
                nn.Conv2d(in_channels, channels, kernel_size=1, stride=stride, pad_mode="valid"),
                nn.BatchNorm2d(channels),
            )

    def construct(self, x):
        identity = x if self.down_sample is None else self.down_sample(x)
        out = self.act(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if "missing_residual" not in self.plan:
            if "detached_residual" in self.plan:
                identity = ops.stop_gradient(identity)
            out = out + identity
        if "missing_final_relu" in self.plan:
            return out
        if "relu_before_add" in self.plan:
            return ops.relu(out - identity) + identity
        return ops.relu(out)


class ConvNet(nn.Cell):
    """Run a stem, blocks, a pooled and upsampled neck, and a head."""

    def __init__(self, depth, dropout, num_classes, plan):
        super().__init__()
        self.plan = plan
        self.stem = nn.SequentialCell(
            [
                PaddedConv(3, 8, "CONSTANT" if "padding_mode" in plan else "REFLECT"),
                nn.BatchNorm2d(8),
                nn.ReLU(),
            ]
        )
        pool = {"kernel_size": 3, "stride": 2, "pad_mode": "pad", "padding": 1}
        if "pool_same" in plan:
            pool = {"kernel_size": 3, "stride": 2, "pad_mode": "same"}
        if "avg_for_max" in plan:
            self.pool = nn.AvgPool2d(**pool)
        else:
            self.pool = nn.MaxPool2d(**pool, ceil_mode="ceil_mode" in plan)
        self.layers = nn.SequentialCell(BasicBlock(8, 8, 1, Plan()))
        for i in range(1, depth):
            self.layers.append(BasicBlock(8 if i == 1 else 16, 16, 2 if i == 1 else 1, plan.block(i)))
        self.project = nn.Conv2d(8 if depth == 1 else 16, 16, 1, pad_mode="valid", has_bias="missing_bias" not in plan)
        self.smooth = nn.Conv2d(16, 6, 3, pad_mode="same", has_bias=True)
        self.blur = nn.AvgPool2d(3, 1, pad_mode="pad", padding=1, count_include_pad="count_include_pad" in plan)
        self.upsample = nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=False, recompute_scale_factor=True)
        if "align_corners" in plan:
            self.upsample = nn.Upsample(size=(8, 8), mode="bilinear", align_corners=True)
        elif "nearest" in plan:
            self.upsample = nn.Upsample(size=(8, 8), mode="nearest")
        self.gap = nn.AdaptiveMaxPool2d(4) if "pool_max" in plan else nn.AdaptiveAvgPool2d(4)
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(p=0.6 if "dropout_p" in plan else dropout)
        self.classifier = nn.Dense(6 * 16, num_classes)

    def shuffle(self, x):
        b, c, h, w = x.shape
        parted = (b, c // 2, 2, h, w) if "shuffle_order" in self.plan else (b, 2, c // 2, h, w)
        return x.reshape(parted).transpose(0, 2, 1, 3, 4).reshape(b, c, h, w)

    def construct(self, x):
        if "channels_reversed" in self.plan:
            x = ops.flip(x, (1,))
        elif "not_normalised" in self.plan:
            x = x * 0.5 + 0.5
        x = self.layers(self.pool(self.stem(x)))
        x = self.blur(self.project(self.shuffle(x)))
        x = self.gap(self.smooth(self.upsample(x)))
        if "flatten_order" in self.plan:
            x = x.transpose(0, 2, 3, 1)
        return self.classifier(self.dropout(self.flatten(x)))


def build(plan: Plan, *, depth=2, dropout=0.0, classes=5) -> nn.Cell:
    """Return the network with the plan's faults."""
    return ConvNet(depth, dropout, classes, plan)
