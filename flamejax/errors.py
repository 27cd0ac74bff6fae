"""The two ways in which flamejax says no."""


class InputError(Exception):
    """The request cannot be carried out: one line that names the key and the fix. Exit code 2."""


class RunError(Exception):
    """A run that started could not be finished. Exit code 3."""


class DivergedError(RunError):
    """Its numbers are of no use any more."""


class WriteError(RunError):
    """What it found out cannot be written any more: no space, no permission."""
