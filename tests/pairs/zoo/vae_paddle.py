"""Write the same VAE the Paddle way: a dict as output, one flat Sequential each way, log-variance first."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from .plan import Plan

__all__ = ["build"]


class VAE(nn.Layer):
    """Encode, sample with the given noise, decode."""

    def __init__(self, width, latent, plan):
        super().__init__()
        self.plan = plan
        self.width = width
        slope = 0.01 if "leaky_slope" in plan else 0.2
        self.encode = nn.Sequential(
            nn.Conv2D(1, width, 3, stride=2, padding=1),
            nn.GroupNorm(2 if "group_count" in plan else 4, width),
            nn.LeakyReLU(slope),
            nn.Conv2D(width, width, 3, stride=2, padding=1),
            nn.GroupNorm(4, width, epsilon=1e-3 if "group_norm_eps" in plan else 1e-5),
            nn.LeakyReLU(slope),
            nn.Flatten(),
        )
        self.logvar = nn.Linear(width * 4, latent)
        self.mu = nn.Linear(width * 4, latent)
        self.expand = nn.Linear(latent, width * 4)
        self.decode = nn.Sequential(
            nn.InstanceNorm2D(width),
            nn.ELU(),
            nn.Conv2DTranspose(width, width, 3, stride=2, padding=1, output_padding=1),
            nn.PReLU(width),
            nn.Conv2DTranspose(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, image, noise):
        code = self.encode(image)
        logvar = self.logvar(code)
        mu = self.mu(code)
        if "encoder_detached" in self.plan:
            mu = mu.detach()
        std = paddle.exp(logvar) if "logvar_not_halved" in self.plan else paddle.exp(logvar / 2)
        z = mu if "noise_forgotten" in self.plan else mu + noise * std
        x = self.expand(z)
        if "reshape_order" in self.plan:
            x = x.reshape([-1, 2, 2, self.width]).transpose([0, 3, 1, 2])
        else:
            x = x.reshape([-1, self.width, 2, 2])
        x = self.decode(x)
        recon = x if "sigmoid_missing" in self.plan else F.sigmoid(x)
        if "outputs_swapped" in self.plan:
            mu, logvar = logvar, mu
        return {"recon": recon, "mu": mu, "logvar": logvar}


def build(plan: Plan, *, depth=1, width=8, latent=6) -> nn.Layer:
    """Return the VAE with the plan's faults."""
    del depth
    return VAE(width, latent, plan)
