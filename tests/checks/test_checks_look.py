"""Lines found in a student's file, and shapes of what ranks report."""

from pathlib import Path

import pytest
import torch

from lab.checks.common.attempt import changed_at, stepped
from lab.checks.common.look import Look
from lab.checks.common.look_around import (
    argument_of,
    beside,
    display_around,
    in_classes,
    in_helpers,
    kept_at,
    kept_default,
    swallows,
    value_outside,
)
from lab.checks.common.look_values import (
    assigned_at,
    first_use,
    last_use,
    list_of,
    loop_around,
    overwritten,
    passed_over,
    skips,
)
from lab.checks.common.report import expect, fits, numbers
from lab.checks.fast.profiles.look_cause import chosen_key, made_under, own_order, returned_from
from lab.checks.train.judge_rarer import compared_at
from lab.grading.diagnosis import Diagnosis

CODE = '''
class Net:
    def forward(self, x):
        """Returns the sum. No return here."""
        # return nothing
        y = x
        return y.sum()


def forward(x):
    return None


def forward(x):  # the last one counts
    return x
'''


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "huge.py").write_text("#" * 2_000_000)
    return tmp_path


def test_the_line_is_code_and_neither_docstring_nor_comment(code: Path):
    assert Look(code, "model.py", "Net.forward")(r"\breturn\b") == "model.py:7  return y.sum()"


def test_an_earlier_pattern_goes_before_an_earlier_line(code: Path):
    assert Look(code, "model.py", "Net.forward")(r"sum", r"y = x") == "model.py:7  return y.sum()"
    assert Look(code, "model.py", "Net.forward")(r"mean", r"y = x") == "model.py:6  y = x"


def test_without_a_match_the_definition(code: Path):
    assert Look(code, "model.py", "Net.forward")(r"softmax") == "model.py:3  def forward(...)"
    assert Look(code, "model.py", "forward")() == "model.py:14  def forward(...)"
    assert Look(code, "model.py", "Net.forward").into("forward")() == "model.py:14  def forward(...)"


@pytest.mark.parametrize("file", ["broken.py", "huge.py", "missing.py"])
def test_a_file_that_cannot_be_read_is_only_named(code: Path, file: str):
    assert Look(code, file, "f")(r"return") == f"f in {file}"
    assert not Look(code, file, "f").mentions("x")


def test_mentions_sees_names_and_attributes_in_code_only(code: Path):
    assert Look(code, "model.py", "Net.forward").mentions("sum")
    assert Look(code, "model.py", "Net.forward").mentions("y")
    assert not Look(code, "model.py", "Net.forward").mentions("nothing")


@pytest.mark.parametrize(
    ("value", "shape", "right"),
    [
        (1, int, True),
        (True, int, False),
        (True, bool, True),
        (1, (None, int), True),
        (None, (None, int), True),
        ("1", (None, int), False),
        ([1, 2], [int], True),
        ([1, "2"], [int], False),
        ("12", [str], False),
        ({"a": 1, "b": 2}, {"a": int}, True),
        ({"b": 2}, {"a": int}, False),
        ([], {"a": int}, False),
        (torch.zeros(2), torch.Tensor, True),
        (False, object, True),
    ],
)
def test_shapes_of_reports(value: object, shape: object, right: bool):
    assert fits(value, shape) is right


def test_a_report_of_another_shape_is_a_diagnosis_that_names_the_rank():
    expect([[1], [2]], [int])
    with pytest.raises(Diagnosis, match="could not be used: rank 1 reported 'x'"):
        expect([[1], "x"], [int])


def test_numbers_are_cut_short():
    assert numbers([3, 1]) == "3, 1"
    assert numbers(range(9), 3) == "0, 1, 2, ..."


def test_a_line_that_a_rank_has_told_and_what_the_calls_in_it_name(tmp_path: Path):
    (tmp_path / "main.py").write_text("def run():\n    a = f(1, size=2, **more)  # here\n    return g(a)\n")
    look = Look(tmp_path, "main.py", "run")
    assert look.line(2) == "main.py:2  a = f(1, size=2, **more)"
    assert [look.line(number) for number in (0, 99)] == ["main.py:1  def run(...)"] * 2
    assert look.keywords(2) == ["size", "**"]
    assert look.keywords(3) == look.keywords(0) == []


KEEPING = """
import functools
import torch

made = {}


class Shard:
    def __getitem__(self, i):
        if not hasattr(Shard, "filler"):
            Shard.filler = i
        return Shard.filler

    def __len__(self):
        self.own = {}
        self.own[1] = 2
        return len(made)


@functools.lru_cache
def cached(x):
    return x


def module(x):
    y = [x]
    y.append(x)
    if x in made:
        return made[x]
    made[x] = x
    return x


def default(x, known=[]):
    known.append(x)
    return known[0]


def own(x):
    own.last = x
    return x


def declared(x):
    global made
    made = made or {x: x}
    return made


def imported(x):
    torch.last = x
    return x


def through_type(x):
    type(x).last = x
    return x
"""


@pytest.mark.parametrize(
    ("function", "place"),
    [
        ("Shard.__getitem__", '10  if not hasattr(Shard, "filler"):'),
        ("Shard.__len__", "14  def __len__(...)"),  # its own, and what it only reads
        ("cached", "20  @functools.lru_cache"),
        ("module", "28  if x in made:"),
        ("default", "35  known.append(x)"),
        ("own", "40  own.last = x"),
        ("declared", "46  made = made or {x: x}"),
        ("imported", "51  torch.last = x"),
        ("through_type", "56  type(x).last = x"),
    ],
)
def test_what_a_function_keeps_from_call_to_call(tmp_path: Path, function: str, place: str):
    (tmp_path / "model.py").write_text(KEEPING)
    assert Look(tmp_path, "model.py", function).kept() == f"model.py:{place}"


SAMPLERS = """
class Unused:
    def set_epoch(self, epoch):
        pass


class Halved:
    def set_epoch(self, epoch):
        self.epoch = epoch // 2


def loaders(rank):
    sampler = Halved()
    dist.barrier()
    if rank == 0:
        dist.barrier()  # once more
    return sampler
"""


def test_a_method_of_a_class_that_the_function_uses(tmp_path: Path):
    (tmp_path / "data.py").write_text(SAMPLERS)
    look = Look(tmp_path, "data.py", "loaders")
    method = look.into_method("set_epoch")
    assert method is not None
    assert method(r"//") == "data.py:9  self.epoch = epoch // 2"
    assert look.into_method("__iter__") is None


def test_a_line_in_a_branch_and_no_other(tmp_path: Path):
    (tmp_path / "data.py").write_text(SAMPLERS)
    look = Look(tmp_path, "data.py", "loaders")
    assert look.in_branch(r"barrier") == "data.py:16  dist.barrier()"
    assert look.in_branch(r"barrier", line=16) == "data.py:16  dist.barrier()"
    assert look.in_branch(r"barrier", line=14) == ""
    assert look.in_branch(r"sampler") == ""


HANDED = """
def wrap(model, blocks, partial):
    unused = policy(wide=True)
    narrow = policy()
    other = narrow
    for block in blocks:
        shard(block, policy=unused)
    partial(shard, model, policy=other)
    for block in blocks:
        if block is None:
            return
    try:
        shard(model)
    finally:
        return model
"""


def test_an_argument_is_followed_to_the_line_that_makes_it(tmp_path: Path):
    (tmp_path / "wrap.py").write_text(HANDED)
    look = Look(tmp_path, "wrap.py", "wrap")
    assert look.source_of("shard", "policy") == "wrap.py:3  unused = policy(wide=True)"
    assert look.source_of("shard", "policy", first="model") == "wrap.py:5  other = narrow"
    assert look.source_of("shard", "module", 0, first="block") == "wrap.py:6  for block in blocks:"
    assert look.source_of("shard", "device") == look.source_of("wrap", "policy") == ""
    assert look.left_early() == "wrap.py:11  return"
    assert look.in_finally() == "wrap.py:15  return model"


HELPED = """
NAMES = {"srun": "SLURM_NODEID"}  # the node's


def number(text):
    try:
        return int(text)
    except ValueError:
        return 0


def read(environ):
    try:
        return number(environ[NAMES["srun"]])
    except KeyError as error:
        raise ValueError("missing") from error


def join(launch, timeout):
    rank = launch.local_rank
    init(
        rank=rank,
        world_size=launch.world_size,
    )
    init(timeout)
"""


@pytest.fixture
def helped(tmp_path: Path) -> Path:
    (tmp_path / "data.py").write_text(HELPED)
    return tmp_path


def test_an_error_is_swallowed_in_a_helper_too_and_not_where_another_is_raised(helped: Path):
    assert swallows(Look(helped, "data.py", "read")) == "data.py:8  except ValueError:"
    assert swallows(Look(helped, "data.py", "number")) == "data.py:8  except ValueError:"
    assert swallows(Look(helped, "data.py", "join")) == ""


def test_an_exercise_of_its_own_is_no_helper(helped: Path):
    (helped / "data.py").write_text(HELPED.replace("number", "setup"))
    assert swallows(Look(helped, "data.py", "read")) == ""


def test_a_line_beside_the_functions(helped: Path):
    assert beside(Look(helped, "data.py", "read"), "NODEID") == 'data.py:2  NAMES = {"srun": "SLURM_NODEID"}'
    assert beside(Look(helped, "data.py", "read"), "int") == ""


def test_the_line_of_an_argument_or_of_what_made_it(helped: Path):
    look = Look(helped, "data.py", "join")
    assert argument_of(look, "init", "rank") == "data.py:20  rank = launch.local_rank"
    assert argument_of(look, "init", "world_size") == "data.py:23  world_size=launch.world_size,"
    assert argument_of(look, "init", "timeout", 0) == "data.py:25  init(timeout)"
    assert argument_of(look, "init", "backend") == ""


MADE = """
class Sums:
    def reduced(self, values):
        total = torch.zeros(2)
        total += torch.stack(values)
        dist.all_reduce(total)
        dist.all_reduce(torch.zeros(2))

def f(loader):
    for epoch in range(3):
        records = []
        loading = {"workers": 1}
        own(loader, **loading)
        own(loader, **dict(workers=1))
"""


def test_where_what_a_call_gets_was_made_and_a_line_in_a_loop(tmp_path: Path):
    (tmp_path / "train.py").write_text(MADE)
    look = Look(tmp_path, "train.py", "f")
    assert look.made_before(6) == "train.py:4  total = torch.zeros(2)", "and not where it was added to"
    assert look.made_before(7) == "train.py:7  dist.all_reduce(torch.zeros(2))"
    assert look.made_before(3) == look.made_before(0) == look.made_before(100) == ""
    assert look.in_loop(r"=\s*\[\]") == "train.py:11  records = []"
    assert look.in_loop(r"for epoch") == look.into("Sums.reduced").in_loop(r"total") == ""
    assert look.unpacked_in(13) == 'train.py:12  loading = {"workers": 1}'
    assert look.unpacked_in(14) == look.unpacked_in(12) == ""


def test_a_line_of_a_helper_a_value_outside_and_a_dict_around(tmp_path: Path):
    (tmp_path / "data.py").write_text(
        "SIZE = get('WORLD_SIZE', 1)\n\n\ndef add(grad):\n    '''all_reduce'''\n    all_reduce(grad)\n\n\n"
        "def f(model):\n    add(model.grad / SIZE)\n    return {\n        'a': g(model),\n    }\n"
    )
    look = Look(tmp_path, "data.py", "f")
    assert in_helpers(look, r"all_reduce") == "data.py:6  all_reduce(grad)"
    assert in_helpers(look, r"broadcast") == ""
    assert value_outside(look, r"WORLD_SIZE") == "data.py:1  SIZE = get('WORLD_SIZE', 1)"
    assert value_outside(look.into("add"), r"WORLD_SIZE") == value_outside(look, r"RANK") == ""
    assert display_around(look, 12) == "data.py:11  return {"
    assert display_around(look, 10) == ""


@pytest.mark.parametrize(
    ("function", "place"),
    [
        ("f", "1  METER = Meter()"),
        ("g", ""),
        ("by_default", "17  def add(x, sums=[0]):"),
        ("collects", "3  RECORDS: list = []"),
        ("counts", "4  total = 0"),
        ("on_itself", "35  on_itself.sums = []"),
        ("given_outside", "44  given_outside.sums = []"),
        ("renames", "51  sums = NOTHING"),
    ],
)
def test_where_that_is_made_which_outlives_a_call(tmp_path: Path, function: str, place: str):
    (tmp_path / "train.py").write_text(
        "METER = Meter()\nSIZE = 8\nRECORDS: list = []\ntotal = 0\n\n\n"
        "def f(x):\n    y = x * SIZE\n    METER.add(y)\n    return METER.mean\n\n\n"
        "def g(x):\n    return x * SIZE\n\n\n"
        "def add(x, sums=[0]):\n    return sums\n\n\n"
        "def by_default(x):\n    return add(x)\n\n\n"
        "def collects(x):\n    RECORDS.append(x)\n\n\n"
        "def counts(x):\n    global total\n    total += x\n\n\n"
        "def on_itself(x):\n    on_itself.sums = []\n\n\n"
        "class Run: ...\n\n\n"
        "def given_outside(x):\n    given_outside.sums.append(x)\n\n"
        "given_outside.sums = []\n\n\n"
        "NOTHING = {name: 0 for name in 'ab'}\n\n\n"
        "def renames(x):\n    sums = NOTHING\n    sums[x] += 1\n"
    )
    found = kept_at(Look(tmp_path, "train.py", function))
    assert found == (place and f"train.py:{place}"), "a number cannot change, but what is global can"


def test_where_a_round_of_a_loop_is_lost(tmp_path: Path):
    (tmp_path / "train.py").write_text(
        "def peeks(batches):\n    first = next(batches)\n    for one in batches:\n        step(one)\n\n\n"
        "def skips(batches):\n    for one in batches:\n        if not one:\n            continue\n"
        "        step(one)\n\n\n"
        "def breaks(batches):\n    for one in batches:\n        step(one)\n        break\n\n\n"
        "def cuts(batches):\n    few = list(batches)[:-1]\n    for one in few:\n        step(one)\n"
    )
    look, used = Look(tmp_path, "train.py", "peeks"), r"step\("
    assert passed_over(look, 2, used) == "train.py:2  first = next(batches)"
    assert passed_over(look.into("skips"), 8, used) == "train.py:9  if not one:"
    assert passed_over(look.into("breaks"), 0, used) == "train.py:17  break"
    assert passed_over(look.into("cuts"), 0, used) == "train.py:21  few = list(batches)[:-1]"


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["best = logits.max(1)[0]", "sums += (best.round() == labels).sum()"], 0),
        (["best, _ = logits.max(1)", "sums += best.long().eq(labels).sum()"], 0),
        (
            [
                "for images, labels in loader:",
                "    best = model(images).argmax(1)",
                "    sums += (best != labels.cpu()).sum()",
            ],
            2,
        ),
        (
            [
                "for images, labels in loader:",
                "    one = labels.cpu()",
                "    sums += (logits.argmax(1) == one).sum()",
            ],
            2,
        ),
        (["_, best = logits.topk(1)", "real = labels != -100", "sums += (labels == best).sum()"], 2),
    ],
)
def test_where_predictions_are_no_classes(tmp_path: Path, lines: list[str], place: int):
    (tmp_path / "train.py").write_text("\n    ".join(["def evaluate(logits, labels, sums):", *lines]))
    assert compared_at(Look(tmp_path, "train.py", "evaluate")) == f"train.py:{place + 2}  {lines[place].strip()}"


def test_a_line_of_another_method_of_a_class_that_is_used_and_a_helpers_default(tmp_path: Path):
    (tmp_path / "train.py").write_text(
        "class Policies:\n    def __init__(self):\n        self.block = policy(bf16)\n\n\n"
        "class Net:\n    def features(self, x):\n        with no_grad():\n            return x\n\n"
        "    def forward(self, x):\n        return self.features(x)\n\n\n"
        "def add(x, sums=[0]):\n    return sums\n\n\ndef f(x, none=None):\n    return add(Policies().block)\n"
    )
    look = Look(tmp_path, "train.py", "f")
    assert in_classes(look, r"policy\(") == "train.py:3  self.block = policy(bf16)"
    assert in_classes(look, r"no_grad") == "", "Net is not used there"
    assert in_helpers(look.into("Net.forward"), r"no_grad") == "train.py:8  with no_grad():"
    assert in_helpers(look.into("Net.forward"), r"policy") == ""
    assert kept_default(look) == "train.py:15  def add(x, sums=[0]):"
    assert kept_default(look.into("Net.forward")) == ""


VALUES = """
ORDER = ("b", "a")

def total(batches, step):
    losses, n = [], 0
    for i, batch in enumerate(batches):
        loss = step(batch).double()
        if i == 0:
            continue
        losses.append(loss)
    return sum(losses)

def at_once(batches, step):
    out = 0
    for batch in batches:
        out += step(batch) * 2
    return out

def shared(pieces):
    times = {"a": 0.0, "b": 0.0}
    rest = len(pieces)
    for piece in pieces:
        for name in ORDER:
            if name in piece:
                break
        else:
            name = "b"
        times[name] += 1
    times["b"] = rest
    return times
"""


def test_lines_that_make_a_value(tmp_path: Path):
    (tmp_path / "fast.py").write_text(VALUES)
    total, shared = Look(tmp_path, "fast.py", "total"), Look(tmp_path, "fast.py", "shared")
    assert first_use(total, "step") == "fast.py:11  return sum(losses)"  # a list only keeps it
    assert first_use(total.into("at_once"), "step") == "fast.py:16  out += step(batch) * 2"
    assert first_use(total, "other") == ""
    assert skips(total, "fast.py:10  losses.append(loss)") == "fast.py:8  if i == 0:"
    assert skips(total, "fast.py:7  loss = step(batch).double()") == ""
    assert made_under(shared, "b") == "fast.py:21  rest = len(pieces)"
    assert made_under(shared, "a") == ""  # 0.0 is what it begins with
    assert chosen_key(shared) == "fast.py:23  for name in ORDER:"
    assert chosen_key(total) == ""
    assert own_order(shared, ("a", "b"), but="") == 'fast.py:2  ORDER = ("b", "a")'
    assert own_order(shared, ("a", "b"), but="ORDER") == ""
    assert returned_from(shared) == 'fast.py:20  times = {"a": 0.0, "b": 0.0}'


NESTED = """
def outer(x):
    if x:
        def inner(a, b):
            c = a
            print(b)
            kept = c
            return kept
    seen = [1]
    for part in seen[:1]:
        inner(
            part, x)
        seen.append(part)
    return inner
"""


def test_what_a_function_defines_has_a_place_too(tmp_path: Path):
    (tmp_path / "fast.py").write_text(NESTED)
    look = Look(tmp_path, "fast.py", "outer")
    inner = look.into("outer.inner")
    assert inner(r"\breturn\b") == "fast.py:8  return kept"
    assert last_use(inner, ["a"]) == 7
    assert last_use(inner, ["b"]) == 0  # it is only printed
    assert loop_around(look, [5, 12]) == "fast.py:9  seen = [1]"
    assert loop_around(look, [9]) == ""
    assert list_of(look, 13) == assigned_at(look, ["seen"]) == "fast.py:9  seen = [1]"
    assert list_of(look, 12) == assigned_at(look, ["nothing"]) == ""


def test_the_line_after_which_a_probe_finds_something_else():
    space: dict = {}
    source = "def f(box):\n    box.append(1)\n    n = len(box)\n    g(box)\n    return n\n"
    source += "def g(box):\n    box[0] = n = 2\n"
    exec(compile(source, "answer.py", "exec"), space)
    box: list[int] = []
    with stepped("answer.py", lambda _: tuple(box)) as notes:
        space["f"](box)
    assert [line for line, _ in notes] == [2, 3, 7, 4, 5]
    assert changed_at(notes, ()) == 7
    assert changed_at(notes[:2], ()) == 2
    assert changed_at(notes[2:], (2,)) == 0


@pytest.mark.parametrize(
    ("function", "place"),
    [("last", "train.py:4  n = len(x)"), ("added", ""), ("own", ""), ("before", "")],
)
def test_where_a_loop_writes_over_what_was_set_before(tmp_path: Path, function: str, place: str):
    (tmp_path / "train.py").write_text(
        "def last(xs):\n    n = 0\n    for x in xs:\n        n = len(x)\n    return n\n\n\n"
        "def added(xs):\n    n = 0\n    for x in xs:\n        n = n + len(x)\n    return n\n\n\n"
        "def own(xs):\n    for x in xs:\n        n = len(x)\n    return n\n\n\n"
        "def before(xs):\n    n = 0\n    for x in xs:\n        n = len(x)\n        print(n)\n"
    )
    assert overwritten(Look(tmp_path, "train.py", function)) == place
