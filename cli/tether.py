"""Ties a child to its supervisor: if that dies, even by SIGKILL, the child gets a SIGTERM.

Run as a script in front of the child's own command; it becomes that command. Linux offers this,
elsewhere the command just runs.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1
BAD_SETTING = 2  # as in shared.environment, which can't be imported here


def main() -> None:
    supervisor, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            sys.exit(128 + signal.SIGTERM)  # it died before the tether held
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"can't run {command[0]}: {error.strerror}\n")
        sys.exit(BAD_SETTING)


if __name__ == "__main__":
    main()
