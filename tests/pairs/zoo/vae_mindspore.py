"""Write the same VAE the MindSpore way: a tuple as output, a group norm of one channel for an instance norm."""

from __future__ import annotations

from mindspore import nn, ops

from .plan import Plan

__all__ = ["build"]


class Encoder(nn.Cell):
    """Shrink an image to the mean and log-variance of its code."""

    def __init__(self, channels, latent_size, plan):
        super().__init__()
        self.plan = plan
        down = {"kernel_size": 3, "stride": 2, "pad_mode": "pad", "padding": 1, "has_bias": True}
        self.conv_in = nn.Conv2d(1, channels, **down)
        self.gn_in = nn.GroupNorm(2 if "group_count" in plan else 4, channels)
        self.conv_out = nn.Conv2d(channels, channels, **down)
        self.gn_out = nn.GroupNorm(4, channels, eps=1e-3 if "group_norm_eps" in plan else 1e-5)
        self.act = nn.LeakyReLU(0.01 if "leaky_slope" in plan else 0.2)
        self.flatten = nn.Flatten()
        self.to_mean = nn.Dense(channels * 4, latent_size)
        self.to_logvar = nn.Dense(channels * 4, latent_size)

    def construct(self, x):
        x = self.act(self.gn_in(self.conv_in(x)))
        x = self.flatten(self.act(self.gn_out(self.conv_out(x))))
        return self.to_mean(x), self.to_logvar(x)


class Decoder(nn.Cell):
    """Grow a code back to an image."""

    def __init__(self, channels, latent_size, plan):
        super().__init__()
        self.plan = plan
        self.channels = channels
        self.dense = nn.Dense(latent_size, channels * 4)
        # nn.InstanceNorm2d has no CPU kernel; one group for each channel is the same.
        self.norm = nn.GroupNorm(channels, channels)
        self.elu = nn.ELU()
        # torch's padding=1 with output_padding=1: MindSpore's output_padding would append zeros.
        up = {"pad_mode": "pad", "padding": (1, 0, 1, 0)}
        if "output_padding" in plan:
            up = {"pad_mode": "pad", "padding": 1, "output_padding": 1}
        elif "pad_same" in plan:
            up = {"pad_mode": "same"}
        self.deconv1 = nn.Conv2dTranspose(channels, channels, 3, stride=2, has_bias=True, **up)
        self.prelu = nn.PReLU(channels)
        self.deconv2 = nn.Conv2dTranspose(channels, 1, 4, stride=2, pad_mode="pad", padding=1, has_bias=True)

    def construct(self, z):
        x = self.dense(z)
        if "reshape_order" in self.plan:
            x = x.reshape(-1, 2, 2, self.channels).transpose(0, 3, 1, 2)
        else:
            x = x.reshape(-1, self.channels, 2, 2)
        x = self.elu(self.norm(x))
        x = self.deconv2(self.prelu(self.deconv1(x)))
        return x if "sigmoid_missing" in self.plan else ops.sigmoid(x)


class VAE(nn.Cell):
    """Encode, sample with the given noise, decode."""

    def __init__(self, channels, latent_size, plan):
        super().__init__()
        self.plan = plan
        self.encoder = Encoder(channels, latent_size, plan)
        self.decoder = Decoder(channels, latent_size, plan)

    def construct(self, image, noise):
        mu, logvar = self.encoder(image)
        if "encoder_detached" in self.plan:
            mu = ops.stop_gradient(mu)
        std = ops.exp(logvar if "logvar_not_halved" in self.plan else logvar * 0.5)
        z = mu if "noise_forgotten" in self.plan else mu + noise * std
        recon = self.decoder(z)
        if "outputs_swapped" in self.plan:
            return recon, logvar, mu
        return recon, mu, logvar


def build(plan: Plan, *, depth=1, width=8, latent=6) -> nn.Cell:
    """Return the VAE with the plan's faults."""
    del depth
    return VAE(width, latent, plan)
