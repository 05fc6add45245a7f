"""Hold architectures of convolutions, in the neutral language of the kits."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["adversarial", "autoencoder", "detector", "residual", "unet"]


def unet(kit: Any) -> Any:
    """Return a network that goes down and comes up again, with skips and an embedding of a time."""

    class Double(kit.Module):
        def __init__(self, inner: Any, outer: Any) -> None:
            super().__init__()
            self.conv1 = kit.conv(inner, outer, 3, padding=1)
            self.norm = kit.batch_norm(outer, eps=1e-5)
            self.act = kit.activation("relu")
            self.conv2 = kit.conv(outer, outer, 3, padding=1)
            self.time = kit.linear(4, outer)

        def forward(self, x: Any, t: Any) -> Any:
            y = self.act(self.norm(self.conv1(x)))
            t = self.time(t)
            return self.conv2(y + kit.reshape(t, t.shape[0], t.shape[1], 1, 1))

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.clock = kit.linear(2, 4)
            self.down1 = Double(3, 4)
            self.down2 = Double(4, 6)
            self.middle = Double(6, 6)
            self.up2 = Double(12, 5)
            self.up1 = Double(9, 4)
            self.last = kit.conv(4, 3, 1)

        def forward(self, x: Any, t: Any) -> Any:
            t = kit.act(self.clock(t), "silu")
            a = self.down1(x, t)
            b = self.down2(kit.pool(a, 2), t)
            c = self.middle(kit.pool(b, 2), t)
            y = self.up2(kit.cat([kit.upsample(c, 2), b], 1), t)
            y = self.up1(kit.cat([kit.upsample(y, 2), a], 1), t)
            return self.last(y)

    return Model()


def residual(kit: Any) -> Any:
    """Return a residual network with squeeze and excitation."""

    class Squeeze(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.fc1 = kit.linear(width, 3)
            self.fc2 = kit.linear(3, width)

        def forward(self, x: Any) -> Any:
            y = kit.mean(kit.mean(x, 3), 2)
            y = kit.act(self.fc2(kit.act(self.fc1(y), "relu")), "sigmoid")
            return x * kit.reshape(y, y.shape[0], y.shape[1], 1, 1)

    class Block(kit.Module):
        def __init__(self, inner: Any, outer: Any, stride: Any) -> None:
            super().__init__()
            self.stride = stride
            self.conv1 = kit.conv(inner, outer, 3, stride=stride, padding=1)
            self.bn1 = kit.batch_norm(outer, eps=1e-5)
            self.conv2 = kit.conv(outer, outer, 3, padding=1)
            self.bn2 = kit.batch_norm(outer, eps=1e-5)
            self.act = kit.activation("relu")
            self.se = Squeeze(outer)
            self.short = kit.conv(inner, outer, 1, stride=stride)

        def forward(self, x: Any) -> Any:
            y = self.act(self.bn1(self.conv1(x)))
            y = self.se(self.bn2(self.conv2(y)))
            return kit.act(y + self.short(x), "relu")

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = kit.conv(3, 4, 3, padding=1)
            self.norm = kit.batch_norm(4, eps=1e-5)
            self.layer1 = Block(4, 4, 1)
            self.layer2 = Block(4, 6, 2)
            self.fc = kit.linear(6, 4)

        def forward(self, x: Any) -> Any:
            x = kit.act(self.norm(self.stem(x)), "relu")
            x = self.layer2(self.layer1(x))
            return self.fc(kit.mean(kit.mean(x, 3), 2))

    return Model()


def autoencoder(kit: Any) -> Any:
    """Return a variational autoencoder that is given its noise."""

    class Encoder(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = kit.conv(3, 4, 3, stride=2, padding=1)
            self.fc = kit.linear(16, 10)
            self.mean = kit.linear(10, 4)
            self.spread = kit.linear(10, 4)

        def forward(self, x: Any) -> Any:
            y = kit.act(self.conv(x), "relu")
            y = kit.act(self.fc(kit.reshape(y, y.shape[0], 16)), "tanh")
            return self.mean(y), self.spread(y)

    class Decoder(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = kit.linear(4, 16)
            self.act = kit.activation("gelu")
            self.conv = kit.conv(4, 3, 3, padding=1)

        def forward(self, z: Any) -> Any:
            y = self.act(self.fc(z))
            return kit.act(self.conv(kit.upsample(kit.reshape(y, y.shape[0], 4, 2, 2), 2)), "sigmoid")

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Encoder()
            self.decoder = Decoder()

        def forward(self, x: Any, noise: Any) -> Any:
            mean, spread = self.encoder(x)
            z = mean + noise * kit.exp(spread * 0.5)
            image = self.decoder(z)
            apart = kit.mean(kit.mean(kit.mean((image - x) * (image - x), 3), 2), 1)
            known = kit.sum(mean * mean + kit.exp(spread) - spread, -1) * 0.5
            return image, apart + known * 0.1

    return Model()


def adversarial(kit: Any) -> Any:
    """Return a generator and a critic that sees what it made beside what is real."""

    class Generator(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = kit.linear(4, 24)
            self.norm = kit.batch_norm(6, eps=1e-5)
            self.conv1 = kit.conv(6, 4, 3, padding=1)
            self.conv2 = kit.conv(4, 3, 3, padding=1)

        def forward(self, z: Any) -> Any:
            y = self.norm(kit.reshape(self.fc(z), z.shape[0], 6, 2, 2))
            y = kit.act(self.conv1(kit.upsample(kit.act(y, "relu"), 2)), "relu")
            return kit.act(self.conv2(y), "tanh")

    class Critic(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = kit.conv(3, 5, 3, stride=1, padding=1)
            self.conv2 = kit.conv(5, 6, 3, stride=2, padding=1)
            self.act = kit.activation("silu")
            self.score = kit.linear(6, 1)

        def forward(self, x: Any) -> Any:
            y = self.conv2(self.act(self.conv1(x)))
            return self.score(self.act(kit.mean(kit.mean(y, 3), 2)))

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = Generator()
            self.critic = Critic()

        def forward(self, x: Any, z: Any) -> Any:
            made = self.generator(z)
            false = self.critic(made)
            true = self.critic(x)
            return {"made": made, "false": false, "true": true}

    return Model()


def detector(kit: Any) -> Any:
    """Return a pyramid of features with one head for all its levels, whose boxes are decoded."""

    class Head(kit.Module):
        def __init__(self, width: Any) -> None:
            super().__init__()
            self.conv = kit.conv(width, width, 3, padding=1)
            self.act = kit.activation("relu")
            self.classes = kit.conv(width, 3, 1)
            self.boxes = kit.conv(width, 4, 1)

        def forward(self, x: Any) -> Any:
            y = self.act(self.conv(x))
            return self.classes(y), self.boxes(y)

    class Decode(kit.Module):
        def __init__(self, stride: Any) -> None:
            super().__init__()
            self.stride = stride

        def forward(self, boxes: Any) -> Any:
            b, c, h, w = boxes.shape
            ys, xs = np.mgrid[:h, :w]
            grid = kit.constant(np.stack([xs, ys]) + 0.5, boxes)
            centres = (kit.act(boxes[:, 0:2], "sigmoid") * 2.0 - 1.0 + grid) * self.stride
            sizes = kit.exp(kit.act(boxes[:, 2:4], "tanh")) * (self.stride * 4.0)
            both = kit.cat([centres - sizes * 0.5, centres + sizes * 0.5], 1)
            return kit.permute(kit.reshape(both, b, c, h * w), 0, 2, 1)

    class Model(kit.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = kit.conv(3, 4, 3, padding=1)
            self.down = kit.conv(4, 6, 3, stride=2, padding=1)
            self.lateral1 = kit.conv(4, 5, 1)
            self.lateral2 = kit.conv(6, 5, 1)
            self.head = Head(5)
            self.decode1 = Decode(1.0)
            self.decode2 = Decode(2.0)

        def forward(self, x: Any) -> Any:
            a = kit.act(self.stem(x), "relu")
            b = kit.act(self.down(a), "relu")
            coarse = self.lateral2(b)
            fine = self.lateral1(a) + kit.upsample(coarse, 2)
            classes1, boxes1 = self.head(fine)
            classes2, boxes2 = self.head(coarse)
            boxes = kit.cat([self.decode1(boxes1), self.decode2(boxes2)], 1)
            return {"fine": classes1, "coarse": classes2, "boxes": boxes}

    return Model()
