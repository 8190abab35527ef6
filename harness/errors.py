"""The one exception a person sees: a request that cannot be served, with the way to mend it."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a machine that lacks something: one clear line, exit code 2, never a traceback.

    The message says what is wrong, where, and how to mend it, on a single line.

    Example:
        try:
            kernelblaster.optimize("no_such_task.py")
        except kernelblaster.UserError as error:
            print(error)
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
