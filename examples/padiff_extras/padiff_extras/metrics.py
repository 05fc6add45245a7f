import numpy as np

import padiff


def cosine(reference, candidate):
    """Cosine of the angle between both arrays, taken as vectors."""
    a, b = (np.asarray(array, np.float64).ravel() for array in (reference, candidate))
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / norms if norms else float("nan")


def snr(reference, candidate):
    """Signal-to-noise ratio: the power of the reference over that of the difference."""
    a, b = (np.asarray(array, np.float64) for array in (reference, candidate))
    signal, noise = np.sum(a * a), np.sum((b - a) ** 2)
    return 10 * np.log10(signal / noise) if signal and noise else float("nan")


def ulp(reference, candidate):
    """Largest distance of two elements in units of the last place of a float32."""
    a, b = (np.asarray(array, np.float32) for array in (reference, candidate))
    return np.max(np.abs(a.astype(np.float64) - b) / np.spacing(np.abs(a)))


@padiff.hookimpl
def padiff_metrics():
    return [
        padiff.Metric("cosine", cosine, better="larger", limit=0.999),
        padiff.Metric("snr", snr, better="larger", unit="dB"),
        padiff.Metric("ulp", ulp),
    ]
