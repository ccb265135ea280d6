"""What can go wrong: the one shape of a refusal, and who is to blame for everything else."""

import difflib
import errno
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

PACKAGE = Path(__file__).resolve().parent


class ConfigError(ValueError):
    """A user's mistake, told in one line: the key, what was given, what is allowed.

    `public` is what other hosts are told of it, where the line has the text of an exception in the user's code.
    """

    shown: bool | None = None  # whether this rank shows it; None: the first rank of each host does

    def __init__(self, text: str, public: str | None = None) -> None:
        super().__init__(text)
        self.public = text if public is None else public


class ArgumentError(ValueError):
    """A core function, which knows no settings, refuses one of its arguments; `because` of an exception, if of one."""

    def __init__(self, argument: str, given: object, allowed: str, because: BaseException | None = None) -> None:
        super().__init__(f"{argument}: given {given}{f': {one_line(because)}' if because else ''}, allowed: {allowed}")
        self.argument, self.given, self.allowed, self.because = argument, given, allowed, because


class UserCodeError(RuntimeError):
    """An exception in a user's own model, data or callback. `details` is its traceback, for its own host only."""

    shown: bool | None = None  # as of a ConfigError

    def __init__(self, what: str, details: str = "") -> None:
        super().__init__(what)
        self.details = details
        self.public = what


class RunFaultError(RuntimeError):
    """The run must not go on: it diverged or lost mass. Only rank 0 knows the words."""


class PeerError(RuntimeError):
    """Another rank did not do its part: it is gone, late, or sent something else."""


class StaleStartError(PeerError):
    """Another start of the run has taken over its folder: this one must not write there."""


def refusal(
    key: str, given: object, allowed: str, known: Iterable[str] = (), because: BaseException | None = None
) -> ConfigError:
    """The one shape of a refusal; `known` are names among which the nearest is offered.

    `because` of an exception in the user's code: its text may have samples in it, so other hosts hear its type only.
    """
    near = nearest(str(given), known)
    hint = f" (did you mean {near}?)" if near else ""
    if because is None:
        return ConfigError(f"{key}: given {given}, allowed: {allowed}{hint}")
    text, public = (f"{key}: given {given}: {why}, allowed: {allowed}{hint}" for why in reasons(because))
    return ConfigError(text, public)


def not_installed(error: ModuleNotFoundError) -> ConfigError:
    """What to do where this is not the Python that the project was installed for."""
    ways = "source .venv/bin/activate, which ./launch/local.sh makes, or pip install the project"
    return ConfigError(f"{error.name}: not installed for {sys.executable}, allowed: {ways}")


def reasons(error: BaseException) -> tuple[str, str]:
    """An exception in one line: with its text, and what may leave this host, its type."""
    return one_line(error), type(error).__name__


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, in whatever case; the same letters in another order come first."""
    names = {one.lower(): one for one in known}
    same_letters = [one for one in names if sorted(one) == sorted(name.lower())]
    near = same_letters or difflib.get_close_matches(name.lower(), names, n=1)
    return names[near[0]] if near else None


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def refused_as(**keys: str) -> Iterator[None]:
    """Turn a core function's refusal of an argument into one of the setting it came from: argument="key"."""
    try:
        yield
    except ArgumentError as error:
        raise refusal(keys[error.argument], error.given, error.allowed, because=error.because) from error


DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def is_of_disk(error: BaseException) -> bool:
    """Whether nothing can be written any more: a full disk, a used-up quota, a disk that has become read-only."""
    return isinstance(error, OSError) and error.errno in DISK


# Exceptions in code that is not ours.

TYPED = ("<stdin>", "<python-input-", "<ipython-input-")  # the "files" of what a person types at a prompt
INSTALLED = {"site-packages", "dist-packages"}  # the folders that have packages
NAMED: set[str] = set()  # the packages that settings or scripts name a function of: the user's, though installed


def name_as_users(module: str) -> None:
    """Take the package of a module, of which the user has named a function, for the user's own; never torch itself."""
    if (package := module.partition(".")[0]) != "torch":
        NAMED.add(package)


def user_frames(error: BaseException) -> TracebackType | None:
    """The part of a traceback from the first frame of the user's own code on; None where there is no such frame.

    It is what we called: a frame after one of ours that is neither ours nor of another's package or Python itself.
    """
    place, ours = error.__traceback__, False
    while place is not None:
        if ours and is_users(place.tb_frame):
            return place
        ours = ours or is_ours(place.tb_frame)
        place = place.tb_next
    return None


def is_ours(frame: FrameType) -> bool:
    return PACKAGE in Path(frame.f_code.co_filename).parents


def is_users(frame: FrameType) -> bool:
    """Whether code is neither ours nor Python's nor that of an installed package which the user did not name."""
    file = Path(frame.f_code.co_filename)
    if is_ours(frame):
        return False
    if INSTALLED.intersection(file.parts):
        return str(frame.f_globals.get("__name__")).partition(".")[0] in NAMED
    return file.name.startswith(TYPED) or (file.is_absolute() and Path(traceback.__file__).parent not in file.parents)


def user_error(what: str, error: BaseException) -> UserCodeError | None:
    """The error of a user's own code with its traceback, without our frames; None where it is not the user's."""
    if isinstance(error, UserCodeError):
        return error
    place = user_frames(error)
    if place is None:
        return None
    last = [(frame, line) for frame, line in traceback.walk_tb(place) if is_users(frame)][-1]
    details = "".join(traceback.format_exception(type(error), error, place)).rstrip()
    return UserCodeError(f"{what} failed: {type_and_place(error, *last)}", details)


def type_and_place(error: BaseException, frame: FrameType, line: int) -> str:
    return f"{type(error).__name__} in {Path(frame.f_code.co_filename).name}, line {line}"


def told_of(error: BaseException) -> str:
    """What other hosts are told of an unexpected error: its type and its place, never its text."""
    if found := user_error("user code", error):
        return found.public
    *_, last = traceback.walk_tb(error.__traceback__)
    return f"failed: {type_and_place(error, *last)}"


def fail_as_user(what: str) -> None:
    """Within an `except` block: raise the present error as the user's own where it comes from there."""
    _, error, _ = sys.exc_info()
    if error is not None and (found := user_error(what, error)):
        raise found from error
