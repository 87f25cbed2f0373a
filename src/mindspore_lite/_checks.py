"""Argument checks that raise what the original package raises.

As there, `bool` passes for `int`, and numpy's integers do not.
"""


def check_instance(name: str, value: object, kind: type) -> None:
    """Raise TypeError unless `value` is a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__}, but got {type(value)}.")


def check_elements(name: str, values: list[object] | tuple[object, ...], kind: type) -> None:
    """Raise TypeError unless every one of `values` is a `kind`."""
    for index, value in enumerate(values):
        if not isinstance(value, kind):
            raise TypeError(f"{name} element must be {kind.__name__}, but got {type(value)} at index {index}.")


def check_list(name: str, value: object, kind: type) -> None:
    """Raise TypeError unless `value` is a list of `kind`."""
    if not isinstance(value, list):
        raise TypeError(f"{name} must be list, but got {type(value)}.")
    check_elements(name, value, kind)


def check_sequence(name: str, value: object, kind: type, *, of: str = "") -> None:
    """Raise TypeError unless `value` is a list or tuple of `kind`; `of` words what it should hold."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} must be list or tuple{of and f' of {of}'}, but got {type(value)}.")
    check_elements(name, value, kind)


def check_count(name: str, value: object, *, prefix: str = "") -> None:
    """Raise TypeError unless `value` is an int, and ValueError if it is negative."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be int, but got {type(value)}.")
    if value < 0:
        raise ValueError(f"{prefix}{name} must be a non-negative int.")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise TypeError unless `value` is a str, and ValueError unless it is one of `choices`."""
    check_instance(name, value, str)
    if value not in choices:
        raise ValueError(f"{name} must be in [{', '.join(choices)}], but got {value}.")


def check_sections(name: str, value: object) -> None:
    """Raise TypeError unless `value` is a dict of str to dicts of str to str."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be dict, but got {type(value)}.")
    for section, entries in value.items():
        check_instance(f"{name}_key", section, str)
        if not isinstance(entries, dict):
            raise TypeError(f"{name}_value must be dict, but got {type(entries)}.")
        for key, entry in entries.items():
            check_instance(f"{name}_value_key", key, str)
            check_instance(f"{name}_value_value", entry, str)
