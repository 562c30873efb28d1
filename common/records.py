"""`@dataclass(frozen=True, slots=True)`, made in a tenth of the time.

The standard library writes the text of six methods for each class and compiles it: 0.3 ms and 6 kB a class, and a start makes a hundred.
Here all classes share one of each, which goes by the class's fields; to make an object takes two to three times as long. So this is for
what is made once or now and then: settings, descriptions, answers of the admin API. What is made with each message or event stays with the
standard library. The rest of `dataclasses` works on these classes, too: `fields`, `replace`, `asdict`, `field`, `__post_init__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  -- type checkers know that one, and that it is exported
else:
    import dataclasses

    def dataclass(*, frozen, slots):
        """As `dataclasses.dataclass`, with these two only."""
        assert frozen
        assert slots
        return _made

    def _made(cls):
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
        fields = dataclasses.fields(made)
        made.__setters__ = {each.name: getattr(made, each.name).__set__ for each in fields}
        made.__compared__ = tuple(each.name for each in fields if each.compare)
        for name, method in METHODS.items():
            if name not in cls.__dict__:  # its own stays, as in the standard library
                setattr(made, name, method)
        return made

    class _Shared:
        """The methods that all these classes have."""

        def __init__(self, /, *values, **named):
            setters = self.__setters__
            if values:
                positional = self.__match_args__
                if len(values) > len(positional):
                    raise TypeError(f"{type(self).__qualname__} takes {len(positional)} positional arguments, not {len(values)}")
                for name, value in zip(positional, values, strict=False):
                    if name in named:
                        raise TypeError(f"{type(self).__qualname__} is given {name!r} twice")
                    named[name] = value
            for name, value in named.items():
                put = setters.get(name)
                if put is None:
                    raise TypeError(f"{type(self).__qualname__} has no field {name!r}")
                put(self, value)
            if len(named) < len(setters):
                _fill(self, named)
            if hasattr(self, "__post_init__"):
                self.__post_init__()

        def __repr__(self):
            shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
            return f"{type(self).__qualname__}({', '.join(shown)})"

        def __eq__(self, other):
            return _compared(self) == _compared(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(_compared(self))

        def __setattr__(self, name, value):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

        def __getstate__(self):
            return [getattr(self, name) for name in self.__setters__]

        def __setstate__(self, state):
            for put, value in zip(self.__setters__.values(), state, strict=True):
                put(self, value)

    METHODS = {name: method for name, method in vars(_Shared).items() if callable(method)}

    def _fill(made, given):
        """Set the fields that are not given to their defaults."""
        for each in dataclasses.fields(made):
            if each.name in given:
                continue
            if each.default is not dataclasses.MISSING:
                value = each.default
            elif each.default_factory is not dataclasses.MISSING:
                value = each.default_factory()
            else:
                raise TypeError(f"{type(made).__qualname__} is not given {each.name!r}")
            made.__setters__[each.name](made, value)

    def _compared(made):
        return tuple(getattr(made, name) for name in made.__compared__)
