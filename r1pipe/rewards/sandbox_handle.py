"""What the tests hold of a program under test: stand-ins for its objects, and what its calls did to arguments or raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from r1pipe.rewards.sandbox_watch import Program


def handle_number(value: Any) -> int:
    """The number of a stand-in; nothing else of the tests' side may cross."""
    if isinstance(value, Handle):
        number: int = value.__dict__["_r1pipe"][1]["object"]
        return number
    raise TypeError(f"a {type(value).__name__} cannot be given to the program")


def put_back(argument: Any, after: Any) -> None:
    """What a call that returned nothing did to an argument."""
    if isinstance(argument, (list, bytearray)) and type(after) is type(argument):
        argument[:] = after
    elif isinstance(argument, (dict, set)) and type(after) is type(argument):
        argument.clear()
        argument.update(after)


def raised(name: str, note: str) -> BaseException:
    """An exception of the program: of the built-in type by that name, else a RuntimeError."""
    kind = getattr(__import__("builtins"), name, None)
    usable = isinstance(kind, type) and issubclass(kind, Exception) and kind is not UnicodeDecodeError
    error: BaseException = RuntimeError(note)
    if usable:
        try:
            error = kind(note)  # type: ignore[misc]
        except TypeError:
            error = RuntimeError(note)
    error.from_program = True  # type: ignore[attr-defined]
    return error


class Handle:
    """Stands for an object in the program's process: may be called, read and gone through, and equals only what the program says
    of another of its objects; to plain data it is never equal."""

    __hash__ = object.__hash__

    def __init__(self, program: Program, key: dict[str, Any]) -> None:
        self.__dict__["_r1pipe"] = (program, key)

    def _ask(self, what: str, *arguments: Any, **keywords: Any) -> Any:
        program, key = self.__dict__["_r1pipe"]
        return program.ask({"ask": what, **key}, arguments, keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the program's function returns or raises."""
        return self._ask("call", *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("attribute", name)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", key)

    def __iter__(self) -> Any:
        return iter(self._ask("iterate"))

    def __len__(self) -> int:
        return int(self._ask("length"))

    def __str__(self) -> str:
        return str(self._ask("string"))

    def __bool__(self) -> bool:
        return self._ask("truth") is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._ask("equal", other) is True

    def __lt__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._ask("less", other) is True
