"""Write a convolutional VAE the torch way: a dataclass as output, transposed convolutions, group norms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .plan import Plan

__all__ = ["build"]


@dataclass
class VaeOutput:
    """Hold what the model returns."""

    recon: torch.Tensor
    mu: torch.Tensor
    logvar: torch.Tensor


class Encoder(nn.Module):
    """Shrink an image to the mean and log-variance of its code."""

    def __init__(self, width, latent, plan):
        super().__init__()
        self.plan = plan
        self.conv1 = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.norm1 = nn.GroupNorm(2 if "group_count" in plan else 4, width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(4, width, eps=1e-3 if "group_norm_eps" in plan else 1e-5)
        self.act = nn.LeakyReLU(0.01 if "leaky_slope" in plan else 0.2)
        self.fc_mu = nn.Linear(width * 4, latent)
        self.fc_logvar = nn.Linear(width * 4, latent)

    def forward(self, x):
        x = self.act(self.norm1(self.conv1(x)))
        x = self.act(self.norm2(self.conv2(x))).flatten(1)
        return self.fc_mu(x), self.fc_logvar(x)


class Decoder(nn.Module):
    """Grow a code back to an image."""

    def __init__(self, width, latent, plan):
        super().__init__()
        self.plan = plan
        self.width = width
        self.fc = nn.Linear(latent, width * 4)
        self.norm = nn.InstanceNorm2d(width, affine=True)
        self.deconv1 = nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
        self.prelu = nn.PReLU(width)
        self.deconv2 = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, z):
        x = self.fc(z)
        if "reshape_order" in self.plan:
            x = x.view(-1, 2, 2, self.width).permute(0, 3, 1, 2)
        else:
            x = x.view(-1, self.width, 2, 2)
        x = self.prelu(self.deconv1(F.elu(self.norm(x))))
        x = self.deconv2(x)
        return x if "sigmoid_missing" in self.plan else torch.sigmoid(x)


class Vae(nn.Module):
    """Encode, sample with the given noise, decode."""

    def __init__(self, width, latent, plan):
        super().__init__()
        self.plan = plan
        self.encoder = Encoder(width, latent, plan)
        self.decoder = Decoder(width, latent, plan)

    def forward(self, image, noise):
        mu, logvar = self.encoder(image)
        if "encoder_detached" in self.plan:
            mu = mu.detach()
        deviation = torch.exp(logvar if "logvar_not_halved" in self.plan else 0.5 * logvar)
        z = mu + noise * deviation
        if "noise_forgotten" in self.plan:
            z = mu
        recon = self.decoder(z)
        if "outputs_swapped" in self.plan:
            mu, logvar = logvar, mu
        return VaeOutput(recon=recon, mu=mu, logvar=logvar)


def build(plan: Plan, *, depth=1, width=8, latent=6) -> nn.Module:
    """Return the VAE with the plan's faults; inputs are (batch, 1, 8, 8) images and (batch, latent) noise."""
    del depth
    return Vae(width, latent, plan)
