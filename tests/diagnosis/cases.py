"""Draw a case by its name, run it, and say what a diff made of it."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

import padiff
from padiff.numerics import epsilon_of

from . import mutants
from .architectures import ARCHITECTURES, inputs
from .bugs_operators import BUGS
from .kit import Layout, narrow
from .kits import kit
from .random_models import random_model
from .rewrites import LAYOUTS, rewritten
from .rewrites_modules import REWRITES
from .rules import RULES, tapped, told
from .sources import Change, Site, Source, counted, parsed, planted, sites

__all__ = ["Case", "Drawn", "Outcome", "drawn", "named", "ran"]

APART = {"float64": 1e-6, "float32": 1e-3}
"""From where on models of two frameworks are two, by the type that they were run in as wholes: kernels hold constants
in float32. Where both are of one framework, a thousandth of it tells."""
_TOLD = frozenset({"arguments", "calls", "missing_module", "code", "code_alone", "taken", "constants", "several"})
"""Causes that any change of the code may have."""


@attrs.frozen
class Case:
    """What is compared: all follows from its fields."""

    kind: str
    """``clean``, ``bug``, ``several`` or ``mutant``."""
    frameworks: tuple[str, str]
    seed: int
    dtype: str = "float32"
    architecture: str | None = None
    """One of the table, or ``random``; None to draw it."""

    @property
    def name(self) -> str:
        """Return a name that tells it from all others."""
        return f"{self.kind}/{self.architecture or 'any'}/{'-'.join(self.frameworks)}/{self.dtype}/{self.seed}"


def named(name: str) -> Case:
    """Return the case of a name."""
    kind, architecture, pair, dtype, seed = name.split("/")
    reference, candidate = pair.split("-")
    return Case(kind, (reference, candidate), int(seed), dtype, None if architecture == "any" else architecture)


@attrs.define
class Planted:
    """One bug, where it lies."""

    name: str
    site: Site
    number: int
    change: Change
    paths: tuple[str, ...] = ()
    """Paths that name it rightly."""


@attrs.define
class Drawn:
    """A case, built."""

    architecture: str
    rewrites: list[str]
    bugs: list[Planted]
    reference: Any
    candidate: Any
    kits: tuple[Any, Any]
    arrays: tuple[np.ndarray, ...]
    sources: tuple[Source, Source]
    """As the candidate is written without its bugs, and with them."""


@attrs.define
class Outcome:
    """What came of a case."""

    name: str
    verdict: str
    """``right``, ``false alarm``, ``wrong pass``, ``found``, ``no bug``, ``does not run`` or ``error``."""
    kind: str = ""
    architecture: str = ""
    frameworks: str = ""
    dtype: str = ""
    rewrites: list[str] = attrs.field(factory=list)
    bugs: list[str] = attrs.field(factory=list)
    places: int = 0
    named: int = 0
    """How many of the places were named."""
    extra: int = 0
    """Sources elsewhere."""
    wrong_causes: list[str] = attrs.field(factory=list)
    apart: float = 0.0
    seconds: float = 0.0
    rules: dict[str, bool] = attrs.field(factory=dict)
    """Rule -> whether it found anything."""
    text: str = ""


def drawn(case: Case) -> Drawn | None:
    """Build a case; None where what was drawn does not run."""
    rng = random.Random(f"{case.name}")
    architecture = case.architecture or rng.choice([*ARCHITECTURES, "random", "random", "random"])
    if architecture == "random":
        source, arrays = random_model(rng.randrange(10**9))
    else:
        source, arrays = parsed(ARCHITECTURES[architecture][0]), inputs(architecture, case.seed)
    names = rng.sample([*REWRITES, *LAYOUTS], rng.choice([0, 1, 1, 2, 3, 4]))
    if architecture == "random":
        names = [name for name in names if name not in LAYOUTS]
    layout = Layout(**{key: value for name in names for key, value in LAYOUTS.get(name, {}).items()})
    kits = kit(case.frameworks[0]), kit(case.frameworks[1], layout)
    other = rewritten(source, names, case.seed)
    bugs = [] if case.kind == "clean" else _planned(case, other, rng, kit(case.frameworks[1], layout))
    if case.kind != "clean" and not bugs:
        return None
    wrong = planted(other, [(bug.site, bug.number, bug.change) for bug in bugs])
    models = planted(source, []).build(kits[0]), wrong.build(kits[1])
    for side, (one, model) in enumerate(zip(kits, models, strict=True)):
        one.disturb(model, np.random.default_rng(case.seed + side))
        one.train(model, True)
        if case.dtype != "float32":
            one.dtype = case.dtype
            one.to(model, case.dtype)
    _place(bugs, kits[1].named(models[1]))
    bugs = [bug for bug in bugs if bug.paths]
    if case.kind != "clean" and not bugs:
        return None  # of a class of which no instance is made
    given = tuple(narrow(array, case.dtype) for array in arrays)
    return Drawn(architecture, names, bugs, *models, kits, given, (other, wrong))


def _planned(case: Case, source: Source, rng: random.Random, one: Any) -> list[Planted]:
    """Draw bugs and their places."""
    instances = counted(source, one)
    wanted = rng.randint(2, 5) if case.kind == "several" else 1
    found: list[Planted] = []
    for _ in range(wanted * 3):
        if len(found) == wanted:
            break
        if case.kind == "mutant":
            mutation = mutants.drawn(source, rng)
            if mutation is None:
                continue
            name, site, change = mutation
        else:
            name = rng.choice(list(BUGS))
            change = BUGS[name].change
            here = sites(source, change)
            if not here:
                continue
            site = rng.choice(here)
        number = rng.randrange(max(instances.get(site.owner, 1), 1))
        if all((bug.site.owner, bug.number) != (site.owner, number) for bug in found):
            found.append(Planted(name, site, number, change))
    return found


def _place(bugs: list[Planted], modules: dict[str, Any]) -> None:
    """Find the paths at which bugs may be named."""
    marked: dict[str, list[str]] = {}
    for path, module in modules.items():
        mark = getattr(module, "diagnosed", None)
        if mark:
            marked.setdefault(mark, []).append(path)
    for bug in bugs:
        homes = marked.get(f"{bug.site.owner}:{bug.number}", [])
        paths = set(homes)
        if bug.site.method == "__init__" and bug.site.child:
            paths |= {path for home in homes for path in modules if _below(path, home, bug.site.child)}
        if bug.name in mutants.MUTATIONS or (bug.name in BUGS and BUGS[bug.name].child):
            paths |= {path for path in modules if path and _holder(path) in homes}
        # What only one side has as a module is named at what is around it.
        paths |= {home.rpartition(".")[0] for home in homes if bug.site.owner in ("Wrapped", "HandLinear")}
        bug.paths = tuple(sorted(paths))


def _holder(path: str) -> str:
    """Return the path of the module that a module is an attribute of, by itself or in a list."""
    around, _, name = path.rpartition(".")
    return around.rpartition(".")[0] if name.isdigit() else around


def _below(path: str, home: str, child: str) -> bool:
    whole = f"{home}.{child}".lstrip(".")
    return path == whole or path.startswith(f"{whole}.")


def ran(case: Case, *, rules: bool = False) -> Outcome:
    """Run a case and judge what the diff says."""
    start = time.process_time()
    outcome = Outcome(case.name, "does not run", case.kind, frameworks="-".join(case.frameworks), dtype=case.dtype)
    try:
        made = drawn(case)
        if made is None:
            return outcome
        outcome.architecture, outcome.rewrites = made.architecture, made.rewrites
        outcome.bugs, outcome.places = [bug.name for bug in made.bugs], len(made.bugs)
        alone = made.kits[1].wholly(made.candidate, made.arrays)
        # In their own types, for which a framework may have no kernels.
        native = [*made.kits[1].wholly(made.candidate, made.arrays, lift=False)]
        native += made.kits[0].wholly(made.reference, made.arrays, lift=False)
        if not all(np.isfinite(values.astype("float64")).all() for values in native):
            return outcome
    except Exception as error:  # a bug that breaks the code is no case
        if case.kind == "clean" and case.dtype == "float32":
            outcome.verdict, outcome.text = "error", f"{type(error).__name__}: {error}"
        return outcome
    try:
        report = padiff.diff(made.reference, made.candidate, made.arrays)
    except Exception as error:
        outcome.verdict, outcome.text = "error", f"{type(error).__name__}: {error}"
        return outcome
    whole = "float32" if "mindspore" in case.frameworks else "float64"
    runs = [
        one.wholly(model, made.arrays) for one, model in zip(made.kits, (made.reference, made.candidate), strict=True)
    ]
    # The statistics that a model keeps are left out: of variances each framework has a convention of its own.
    outcome.apart = apart(*(run[:-1] for run in runs))
    # What moves both by less than a rounding of the case's own type nobody sees in that type.
    differs = outcome.apart > max(APART[whole], epsilon_of(case.dtype) / 2)
    # Of the candidate's own weights, or of those that it was given: what clips a few values may clip none of others.
    wrong = bool(made.bugs) and (differs or apart(_without(made, case, made.bugs), alone) > APART[whole] / 1000)
    if len(made.bugs) > 1:
        # One bug may hide another: what detaches a branch hides what is wrong with its gradients.
        made.bugs = [bug for bug in made.bugs if apart(_without(made, case, [bug]), alone) > APART[whole] / 1000]
        outcome.places = len(made.bugs)
    _judge(outcome, made, report, wrong=wrong, differs=differs)
    if rules:
        ours, theirs = (
            tapped(k, m, made.arrays) for k, m in zip(made.kits, (made.reference, made.candidate), strict=True)
        )
        outcome.rules = {rule: told(rule, report.mapping, ours, theirs) for rule in RULES}
    outcome.seconds = time.process_time() - start
    return outcome


def _without(made: Drawn, case: Case, left_out: Sequence[Planted]) -> list[np.ndarray]:
    """Return what the candidate computes of the same weights without some of its bugs."""
    one = kit(case.frameworks[1], made.kits[1].layout)
    bugs = [bug for bug in made.bugs if bug not in left_out]
    model = planted(made.sources[0], [(bug.site, bug.number, bug.change) for bug in bugs]).build(one)
    one.disturb(model, np.random.default_rng(case.seed + 1))
    one.train(model, True)
    if case.dtype != "float32":
        one.dtype = case.dtype
        one.to(model, case.dtype)
    return one.wholly(model, made.arrays)


def apart(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """Return how far two whole runs are apart: relative L2 of outputs and gradients.

    This is the judge of padiff: it knows nothing of alignment, forcing or tolerance. What stands at another position
    is compared where its shape is.
    """
    ours, theirs = (sorted(run, key=lambda one: one.shape) for run in (ours, theirs))
    if len(ours) != len(theirs) or any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
        return float("inf")
    found = [0.0]
    for one, other in zip(ours, theirs, strict=True):
        a, b = one.astype("float64"), other.astype("float64")
        scale = max(float(np.linalg.norm(a)), 1e-9)
        found.append(float(np.linalg.norm(a - b)) / scale)
    return float("inf") if np.isnan(found).any() else max(found)


def _judge(outcome: Outcome, made: Drawn, report: Any, *, wrong: bool, differs: bool) -> None:
    """Write down whether the verdict is right, and whether the places are.

    ``wrong`` says that the bugs change what the candidate computes; ``differs`` that both models do, as they stand now.
    """
    if report.aligned:
        outcome.verdict = "wrong pass" if differs else "right" if not wrong else "no bug"
    elif wrong:
        outcome.verdict = "found"
        _located(outcome, made, report)
    else:
        outcome.verdict = "false alarm"
    if outcome.verdict in ("false alarm", "wrong pass"):
        outcome.text = str(report)


def _located(outcome: Outcome, made: Drawn, report: Any) -> None:
    named = {source.candidate.path for source in report.sources}
    right = {path for bug in made.bugs for path in bug.paths}
    outcome.named = sum(bool(named & set(bug.paths)) for bug in made.bugs)
    outcome.extra = len(named - right - {None})
    words = {word for bug in made.bugs if bug.name in BUGS for word in BUGS[bug.name].causes}
    if outcome.kind != "mutant":
        causes = {
            source.cause for source in report.sources if source.cause is not None and source.cause.name not in _TOLD
        }
        outcome.wrong_causes = [str(cause) for cause in causes if not any(word in cause for word in words)]
    if outcome.extra or outcome.named < outcome.places or outcome.wrong_causes:
        outcome.text = f"places {[bug.paths for bug in made.bugs]}, named {sorted(map(str, named))}\n{report}"
