"""Read the command line, run a command, and end as a Unix tool does."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from padiff._version import __version__
from padiff.cli import _compare, _diff, _graph, _lists, _map, _record, _show
from padiff.cli._parser import Parser, UsageError
from padiff.cli._words import folded, in_options
from padiff.errors import PadiffError, PluginWarning, did_you_mean

TROUBLE = 2
INTERRUPTED = 130


class Command(NamedTuple):
    """A command: its arguments, what it does, and why one would use it."""

    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], tuple[int, str]]
    purpose: str


_COMMANDS = {
    "diff": Command(
        _diff.add_arguments,
        _diff.run,
        "compare two models: do they compute the same, and if not, where do they differ?",
    ),
    "record": Command(_record.add_arguments, _record.run, "run a model once, and record what it does to a directory"),
    "compare": Command(
        _compare.add_arguments,
        _compare.run,
        "compare two recorded runs, without the models and their frameworks",
    ),
    "show": Command(_show.add_arguments, _show.run, "print what a recorded run holds"),
    "map": Command(
        _map.add_arguments,
        _map.run,
        "write mapping.yaml: which module of one model is which of the other",
    ),
    "graph": Command(
        _graph.add_arguments,
        _graph.run,
        "draw two recorded runs side by side, in one page for a browser",
    ),
    "adapters": Command(
        _lists.add_adapters_arguments,
        _lists.adapters,
        "list which frameworks padiff can watch here, and what is broken, and why",
    ),
    "plugins": Command(
        _lists.add_plugins_arguments,
        _lists.plugins,
        "list all that plugins contribute: adapters, metrics, special transfers, renderers, readers",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 (aligned), 1 (not aligned), 2 (trouble), or 130 (interrupted)."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _read(words)
    except UsageError as error:
        return _trouble(str(error), traced=False)
    except SystemExit as end:  # argparse has printed its help
        return end.code if isinstance(end.code, int) else TROUBLE
    if arguments is None:
        return TROUBLE
    atexit.register(gc.freeze)  # else Python looks for garbage among all that frameworks hold before it ends
    try:
        with _readable_warnings():
            status, text = _COMMANDS[arguments.command].run(arguments)
    except KeyboardInterrupt:
        print("padiff: interrupted", file=sys.stderr)
        return INTERRUPTED
    except PadiffError as error:
        return _trouble(in_options(_of_command(str(error), arguments)), traced=arguments.traceback)
    except Exception as error:
        seen = f"{type(error).__qualname__}: {error}"
        hint = "this is no error that padiff knows; --traceback shows where it came from."
        return _trouble(f"{seen}\nHint: {hint}", traced=arguments.traceback)
    _print(text)
    return status


def _read(words: list[str]) -> argparse.Namespace | None:
    """Return what a command line asks for; None where it names no command, for which the help is then printed."""
    about = "Compare deep-learning models across frameworks."
    parser = Parser("padiff", description=about, usage="padiff COMMAND [OPTIONS]")
    parser.add_argument("--version", action="version", version=f"padiff {__version__}")
    found = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    commands = {}
    for name, command in _COMMANDS.items():
        commands[name] = found.add_parser(
            name, prog=f"padiff {name}", help=command.purpose, description=command.purpose
        )
        command.add_arguments(commands[name])
        commands[name].add_argument("--traceback", action="store_true", help="show Python's traceback on an error")
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    first = next((word for word in words if not word.startswith("-")), None)
    if first is not None and first not in commands:
        hint = did_you_mean(first, commands, "{}")
        parser.error(f"there is no command {first!r}; there are {', '.join(commands)}\nHint: {hint}")
    arguments, unknown = parser.parse_known_args(words)
    (commands.get(arguments.command) or parser).check_unknown(unknown)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return None
    return arguments


def _of_command(message: str, arguments: argparse.Namespace) -> str:
    """Return a message without the option that serves the second of two models, where the command runs one."""
    if hasattr(arguments, "candidate_inputs"):
        return message
    return message.replace("; where the other model's names differ, give candidate_inputs=", ", with --inputs")


def _trouble(message: str, *, traced: bool) -> int:
    """Say what went wrong on stderr."""
    if traced:
        traceback.print_exc()
    print(folded(f"padiff: {message}", sys.stderr), file=sys.stderr)
    return TROUBLE


def _print(text: str) -> None:
    """Print; a reader that went away, or a stream that cannot spell a letter, is no error."""
    try:
        try:
            print(text, flush=True)
        except UnicodeEncodeError:
            spelled = sys.stdout.encoding or "ascii"
            print(text.encode(spelled, "backslashreplace").decode(spelled), flush=True)
    except BrokenPipeError:
        # Python flushes stdout once more at its end, and would complain there.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _readable_warnings() -> Iterator[None]:
    """Print padiff's own warnings as sentences, without a source line; leave the others as they are."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
            if issubclass(category, PluginWarning):
                print(f"padiff: warning: {message}", file=sys.stderr)
            else:
                usual(message, category, *rest)  # type: ignore[arg-type]

        warnings.showwarning = show  # type: ignore[assignment]
        yield
