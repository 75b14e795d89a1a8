"""The ``psionic-csm`` command: its way in and its way out.

What a command needs is imported once the signals are in hand: Ctrl-C is quiet at any moment.
Exit codes: see ``cli/exits.py``.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from cli.exits import CommandFailed


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until run() watches the signals
    from shared import output

    output.make_whole(output.ESCAPED)  # a file's name may be any bytes
    code = run(sys.argv[1:] if arguments is None else arguments)
    output.settle()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command; every failure becomes a message on standard error and an exit code."""
    from cli.commands import command
    from cli.exits import BY_SIGNAL, NOT_STARTED, OK, CommandFailed
    from cli.signals import Interrupted, Signals
    from cli.streams import OutputGone
    from shared.environment import SettingsError

    try:
        with Signals() as signals, signals.raising():
            command().main(arguments, prog_name="psionic-csm")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else OK
    except CommandFailed as failed:
        return _told(failed)
    except SettingsError as error:
        return _told(CommandFailed(NOT_STARTED, str(error)))
    except OutputGone:
        return BY_SIGNAL + signal.SIGPIPE
    except OSError as error:
        return _told(CommandFailed.by(error))
    except Interrupted as interrupted:
        sys.stderr.write(f"{interrupted.note}\n")
        return BY_SIGNAL + interrupted.signum
    return OK


def _told(failed: CommandFailed) -> int:
    from cli import show

    show.failed(failed)
    return failed.exit_code


if __name__ == "__main__":
    main()
