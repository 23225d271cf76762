"""A recorder in place of a student's function knows each argument by its place, whatever it is called there."""

from collections.abc import Callable
from typing import Any

import pytest

from lab.checks.common.stand_in import WrongArgumentsError, called_alike, stand_in


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "as in the template": lambda model, device, *, size=2: (model, device, size),
    "a name of its own": lambda model, dev, size=2: (model, dev, size),
    "other names": lambda net, dev, *, size=2: (net, dev, size),
    "more by name": lambda net, dev, **more: (net, dev, more.get("size", 2)),
    "another order": lambda device, model, *, size=2: (model, device, size),
    "decorated": decorated(lambda model, device, size=2: (model, device, size)),
}


def noted(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []

    def recorder(original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        seen.append(arguments)
        return original(**arguments | {"device": "meta"})

    return stand_in(function, recorder, ("model", "device")), seen


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_have_our_names_and_the_original_takes_them(name: str):
    recorded, seen = noted(FUNCTIONS[name])
    first, second = ("cpu", "net") if name == "another order" else ("net", "cpu")
    assert recorded(first, second, size=3) == ("net", "meta", 3)
    assert {key: seen[0][key] for key in ("model", "device")} == {"model": "net", "device": "cpu"}


def test_arguments_by_the_students_names():
    recorded, seen = noted(FUNCTIONS["other names"])
    assert recorded(dev="cpu", net="net") == ("net", "meta", 2)
    assert seen == [{"model": "net", "device": "cpu", "size": 2}]


def test_a_wrong_call_fails_in_the_words_of_the_original():
    def evaluate(model: Any, device: Any) -> None: ...

    recorded, seen = noted(evaluate)
    with pytest.raises(TypeError, match=r"evaluate\(\) missing 1 required positional argument: 'device'"):
        recorded("net")
    assert not seen


def test_an_argument_that_is_not_there_is_named():
    def evaluate(model: Any) -> None: ...

    with pytest.raises(WrongArgumentsError, match=r"evaluate\(\) has no argument for device"):
        noted(evaluate)[0]("net")


def test_a_substitute_is_called_as_the_original_is():
    def substitute(model: Any, device: Any) -> tuple[Any, Any]:
        return model, device

    for function in (FUNCTIONS["other names"], FUNCTIONS["a name of its own"]):
        assert called_alike(function, substitute)("net", dev="cpu", size=5) == ("net", "cpu")
