"""Lines of a student's file at which a value became wrong, before it was used."""

import ast
from pathlib import Path

import pytest

from lab.checks.common.look import Look
from lab.checks.common.look_around import kept_at
from lab.checks.ddp_utils.look_average import not_moved_on, waited_alone
from lab.checks.fsdp_utils.judge_precision import options_of_root
from lab.checks.main.look_made import (
    WideLook,
    asks_for_truth,
    by_rank,
    condition_of,
    handed_for_training,
    is_fixed,
    seeded_wrong,
)
from lab.checks.train.means import moving_at, worked_out


def look_into(folder: Path, text: str, function: str) -> Look:
    (folder / "code.py").write_text(text)
    return Look(folder, "code.py", function)


def marked(text: str) -> str:
    """The place of the line that ends in `# here`; "" without one."""
    lines = text.splitlines()
    number = next((i for i, line in enumerate(lines, 1) if line.endswith("# here")), 0)
    return f"code.py:{number}  {lines[number - 1].split('#')[0].strip()}" if number else ""


def method(body: str, *, first: str = "") -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"class Meter:\n    {first or 'pass'}\n\n    def update(self, loss):\n{lines}\n"


USES_METER = "\ndef evaluate(loader):\n    meter = Meter()\n    return meter\n"


@pytest.mark.parametrize(
    "loop",
    [
        "a = 0\nfor g in grads:\n    g.copy_(flat[a : a + g.numel()])\n    a = g.numel()  # here\n",
        "a = 0\nfor g in grads:\n    n = g.numel()\n    g.copy_(flat.narrow(0, a, n))\n    a = n  # here\n",
        "a = 0\nfor g in grads:\n    b = a + g.numel()\n    g.copy_(flat[a:b])\n    a = b\n",
        "a, b = 0, 0\nfor g in grads:\n    a, b = b, b + g.numel()\n    g.copy_(flat[a:b])\n",
        "a = 0\nfor g in grads:\n    g.copy_(flat[a : a + g.numel()])\n    a += g.numel()\n",
        "sizes = list(map(numel, grads))  # here\nfor g, a in zip(grads, sizes):\n    g.copy_(flat[a : a + 1])\n",
        "ends = list(accumulate(sizes))\nfor g, a in zip(grads, ends):\n    g.copy_(flat[a : a + g.numel()])\n",
    ],
)
def test_where_the_place_of_a_part_is_not_moved_on(tmp_path: Path, loop: str):
    text = "def average(grads, flat):\n" + "".join(f"    {line}\n" for line in loop.splitlines())
    assert not_moved_on(look_into(tmp_path, text, "average")) == marked(text)


@pytest.mark.parametrize("end", ["work.wait()  # here", "work.wait()\n        grad /= n"])
def test_where_a_sum_is_waited_for_and_not_divided(tmp_path: Path, end: str):
    text = (
        "def average(works, n):\n    for work, grad in works[:2]:\n        work.wait()\n        grad.div_(n)\n"
        f"    for work, grad in works[2:]:\n        {end}\n"
    )
    assert waited_alone(look_into(tmp_path, text, "average")) == marked(text)


@pytest.mark.parametrize(
    "lines",
    [
        ["options = dict(mesh=mesh)", "options = dict(mesh=mesh, mp_policy=policy)  # here"],
        ["options = {}", "options['mp_policy'] = policy  # here", "options['mesh'] = mesh"],
        ["options = {}", "options.update(mp_policy=policy)  # here"],
        ["given = {'mp_policy': policy}", "options = {**given}  # here"],
    ],
)
def test_where_the_options_of_the_models_own_policy_are_made(tmp_path: Path, lines: list[str]):
    calls = ["fully_shard(block, **options)", "fully_shard(model, **options)"]
    text = "def get(model):\n" + "".join(f"    {line}\n" for line in (*lines, *calls))
    assert options_of_root(look_into(tmp_path, text, "get")) == marked(text)


def test_a_policy_that_is_handed_over_by_itself_is_in_no_options(tmp_path: Path):
    text = "def get(model):\n    options = {}\n    fully_shard(model, **options, mp_policy=policy)\n"
    assert options_of_root(look_into(tmp_path, text, "get")) == ""


SEEDS = "def seeds(seed=7, rank=0):\n    torch.manual_seed(seed + rank)\n\n\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"{SEEDS}def run(args):\n    seeds(args.seed, get_rank())  # here\n", by_rank),
        (f"{SEEDS}def run(args):\n    me = get_rank()\n    seeds(args.seed, rank=me)  # here\n", by_rank),
        ("def run(args):\n    me = get_rank()\n    torch.manual_seed(args.seed + me)  # here\n", by_rank),
        ("def run(args):\n    seed = args.seed + get_rank()  # here\n    torch.manual_seed(seed)\n", by_rank),
        ("def run(args):\n    torch.manual_seed(args.seed)\n    Generator().manual_seed(get_rank())\n", by_rank),
        (f"{SEEDS}def run(args):\n    seeds(args.seed)\n", by_rank),
        ("def seeds(seed=7):\n    torch.manual_seed(seed)\n\n\ndef run(args):\n    seeds()  # here\n", is_fixed),
        ("def run(args):\n    seed = 7  # here\n    torch.manual_seed(seed)\n", is_fixed),
        ("def run(args):\n    torch.manual_seed(args.seed)\n\n\ndef main():\n    run()\n", is_fixed),
        ("def run(args):\n    seed = args.seed or 7  # here\n    torch.manual_seed(seed)\n", asks_for_truth),
        (
            "class T:\n    def go(self):\n        s = self.seed + self.run.rank  # here\n"
            "        torch.manual_seed(s)\n",
            by_rank,
        ),
    ],
)
def test_where_a_seed_became_wrong(tmp_path: Path, text: str, wrong):
    assert seeded_wrong(look_into(tmp_path, text, "run"), wrong) == marked(text)


@pytest.mark.parametrize(
    "lines",
    [
        ["go = not args.dry_run  # here", "if go:", "    train(model)"],
        ["dry = args.dry_run", "if not dry:  # here", "    train(model)"],
        ["go = not args.dry_run", "if go or args.more:  # here", "    train(model)"],
        ["train(model)"],
    ],
)
@pytest.mark.parametrize("in_class", [False, True])
def test_the_condition_of_a_line_or_what_made_it(tmp_path: Path, lines: list[str], in_class: bool):
    body = "\n".join(lines)
    text = method(body) + "\ndef run(args):\n    Meter().update(args)\n"
    if not in_class:
        text = "def run(args):\n" + "".join(f"    {line}\n" for line in lines)
    look_into(tmp_path, text, "run")
    assert condition_of(WideLook(tmp_path, "code.py", "run"), r"train\(") == marked(text)


def test_what_the_function_lacks_is_looked_for_elsewhere(tmp_path: Path):
    text = (
        method("train(loss)  # here")
        + "\ndef wrap_model(model):\n    begin(model)\n\n\ndef run(args):\n    pass\n"
    )
    look_into(tmp_path, text, "run")
    look = WideLook(tmp_path, "code.py", "run")
    assert look(r"train\(") == marked(text)
    assert look(r"begin\(") == "code.py:12  def run(...)", "what an exercise asks for is a place of its own"
    assert look.into("wrap_model")(r"train\(") == "code.py:8  def wrap_model(...)"


@pytest.mark.parametrize(
    ("inside", "call", "found"),
    [
        ("get_dataloaders(one, two)", "both(sets.test, sets.valid)", True),
        ("get_dataloaders(train_set=one, valid_set=two)", "both(two=sets.valid, one=sets.test)", True),
        ("get_dataloaders(two, two)", "both(sets.train, sets.test)", False),
        ("get_dataloaders(sets.test, two)", "both(sets.train, sets.test)", False),
    ],
)
def test_where_a_helper_is_given_the_test_images_to_train_on(tmp_path: Path, inside: str, call: str, found: bool):
    text = f"def both(one, two):\n    return {inside}\n\n\ndef run(sets):\n    loader, _ = {call}\n"
    place = handed_for_training(look_into(tmp_path, text, "run"), 2, "test")
    assert place == (f"code.py:6  loader, _ = {call}" if found else "")


@pytest.mark.parametrize(
    "body",
    [
        "self.value = self.keep * self.value + (1 - self.keep) * loss  # here",
        "self.value += self.step * (loss - self.value)  # here",
        "self.value *= self.keep  # here\nself.value += loss",
        "self.value.lerp_(loss, self.step)  # here",
        "self.value = self.value + loss * 3",
    ],
)
def test_where_a_moving_average_is_worked_out(tmp_path: Path, body: str):
    text = method(body) + USES_METER
    assert moving_at(look_into(tmp_path, text, "evaluate")) == marked(text)


def test_a_mean_is_worked_out_in_a_class(tmp_path: Path):
    text = method("self.total += loss  # here") + USES_METER
    assert worked_out(look_into(tmp_path, text, "evaluate"), r"\+=\s*loss") == marked(text)
    assert worked_out(look_into(tmp_path, text, "evaluate"), "nothing") == "code.py:10  return meter"


@pytest.mark.parametrize(
    ("first", "body", "found"),
    [
        ("sums: dict = {}", "self.total = self.sums.setdefault(0, loss)", True),
        ("sums = torch.zeros(3)", "self.sums[0] += loss", True),
        ("sums = torch.zeros(3)", "self.sums = torch.zeros(3)\nself.sums[0] += loss", False),
        ("sums: list = field(default_factory=list)", "self.sums.append(loss)", False),
        ("count = 0", "Meter.count += 1", True),
        ("count = 0", "self.count += 1", False),
        ("names = ['a']", "return self.names", False),
    ],
)
def test_an_attribute_of_a_class_that_is_changed_is_kept(tmp_path: Path, first: str, body: str, found: bool):
    text = method(body, first=first) + USES_METER
    ast.parse(text)
    assert kept_at(look_into(tmp_path, text, "evaluate")) == (f"code.py:2  {first}" if found else "")


def test_a_default_of_a_class_is_kept(tmp_path: Path):
    text = "class Meter:\n    def __init__(self, sums={}):\n        self.sums = sums\n" + USES_METER
    assert kept_at(look_into(tmp_path, text, "evaluate")) == "code.py:2  def __init__(self, sums={}):"
