"""List the planted faults of all pairs."""

from __future__ import annotations

from . import faults_convnet, faults_llama, faults_recurrent, faults_transformer, faults_vae
from .rows import EVERYWHERE, Row

__all__ = ["EVERYWHERE", "ROWS", "Row"]

ROWS: tuple[Row, ...] = (
    *faults_transformer.ROWS,
    *faults_convnet.ROWS,
    *faults_recurrent.ROWS,
    *faults_llama.ROWS,
    *faults_vae.ROWS,
)
