"""Run padiff from a shell; nothing heavy is imported before a command needs it."""

from padiff.cli._main import main
