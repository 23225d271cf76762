"""Which code a person should look at: none of the right answers, all of what cheats with the checks."""

import ast
import json
from pathlib import Path

import pytest
from answers.all_answers import RIGHT

from lab.course.marks import SubmissionRecord
from lab.grading.reach import MOST, reaches
from lab.syllabus.syllabus import syllabus

REACHING = {
    "sys.modules": "import sys\nsys.modules['lab.checks.model.observe']",
    "under another name": "import sys as system\nsystem.modules",
    "by name": "from sys import modules",
    "in a function": "def forward(x):\n    from sys import modules as m\n    return m",
    "by getattr": "import sys\ngetattr(sys, 'modules')",
    "by a name made up": "import sys\ngetattr(sys, 'mod' + 'ules')",
    "sys handed on": "import sys, operator\noperator.attrgetter('modules')(sys)",
    "sys in a variable": "import sys\ns = sys\ns.modules",
    "the checks": "import lab.checks.model.observe",
    "the ranks": "from lab.ranks import wire",
    "the lab itself": "from lab import grading",
    "the lab as an attribute": "import lab.training\nlab.ranks.wire",
    "gc": "import gc",
    "ctypes": "from ctypes import pythonapi",
    "frames": "import sys\nsys._getframe(1)",
    "frames of an error": "def f(error):\n    return error.__traceback__.tb_frame.f_back",
    "frames of a generator": "g = (x for x in [])\ng.gi_frame",
    "inspect": "import inspect",
    "importlib": "import importlib.util",
    "globals of a function": "def f(): pass\nf.__globals__",
    "code of a function": "def f(): pass\nf.__code__ = None",
    "an attribute by its name": "import operator\noperator.attrgetter('__globals__')",
    "subclasses": "object.__subclasses__()",
    "exec": "exec('import gc')",
    "an import by its name": "__import__('gc')",
    "builtins": "import builtins\nbuiltins.print = None",
    "builtins in a dict": "globals()['__builtins__']",
    "a function of torch": "import torch\ntorch.allclose = lambda *_: True",
    "one of torch.distributed": "import torch.distributed as dist\ndist.all_reduce = None",
    "a method of torch": "from torch import nn\nnn.Module.__call__ = None",
    "a class of torch": "from torch.optim import SGD\ndef f():\n    SGD.step = None",
    "through a variable": "import torch\nd = torch.distributed\nd.barrier = None",
    "by setattr": "import torch\nsetattr(torch, 'equal', None)",
    "by a dict": "import torch\ntorch.__dict__['equal'] = None",
    "by vars": "import torch\nvars(torch)['equal'] = None",
    "in a loop": "import torch\nfor torch.equal in [None]: pass",
    "as one of two": "import torch\na, torch.equal = 1, None",
    "a function of lab.training": "from lab.training import run\nrun.Run.finish = None",
    "of getattr": "import torch\ngetattr(torch, 'nn').Module = None",
    "mock": "from unittest import mock",
    "dispatch": "from torch.utils._python_dispatch import TorchDispatchMode",
    "a tensor that lies": "import torch\nclass T(torch.Tensor):\n    def __torch_function__(self, *a): pass",
    "the lab's connection": "import os\nos.write(5, b'R')",
    "a socket of a descriptor": "import socket\nsocket.socket(fileno=5)",
    "another process": "open('/proc/self/mem', 'wb')",
    "pickle": "import pickle",
    "another coding": "# coding: utf-7\n+AGkAbQBwAG8AcgB0- gc",
}
HONEST = """
'''A docstring about sys.modules, gc and __globals__.'''
from __future__ import annotations
import os, sys, warnings
import torch
import torch.distributed as dist
from torch import nn
import data  # its own
from lab.training import Run, build_network
from lab.training.run import Run as R
# sys.modules["lab.checks"], import gc
torch.backends.cudnn.benchmark = True
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("RANK", "0")
data.CACHE = {}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList()
        for name, module in self.named_modules(): setattr(self, "last", module)
        self.kind = self.__class__.__name__
def run(args, model, run):
    run.device = torch.device("cpu")
    model.module.loss = getattr(torch, args.precision)
    print(vars(args), list(model.modules()), file=sys.stderr)
    if not dist.is_initialized(): sys.exit(1)
    if dist.get_rank(): sys.stdout = open(os.devnull, "w")
    model.eval()
    model.compile()
    model.grad = None
    for p in model.parameters(): p.grad = None
    return __name__, __file__, isinstance(model, nn.Module)
"""


@pytest.mark.parametrize("name", REACHING)
def test_code_that_reaches_beyond_is_named_with_its_line(name: str):
    (place, *_) = reaches(
        {"model.py": f"{'' if 'coding' in name else '# one'}\n{REACHING[name]}\n".lstrip("\n").encode()}
    )
    assert place.startswith("model.py:")
    assert int(place.split(":")[1].split()[0]) > 1


def test_other_code_is_not():
    ast.parse(HONEST)
    assert reaches({"model.py": HONEST.encode(), "data.py": b"CACHE = None\n"}) == ()


@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_nor_are_the_labs_own_modules(root: Path, folder: str):
    assert (
        reaches({str(path.relative_to(root)): path.read_bytes() for path in (root / folder).rglob("*.py")}) == ()
    )


@pytest.mark.parametrize("exercise", sorted({answer.exercise for answer in RIGHT}))
def test_nor_is_any_right_answer(exercise: str, tmp_path: Path):
    for number, answer in enumerate(answer for answer in RIGHT if answer.exercise == exercise):
        place = tmp_path / str(number)
        place.mkdir()
        file = answer.install(place) / syllabus()[exercise].file
        assert reaches({file.name: file.read_bytes()}) == (), answer.name


def test_what_is_not_read_is_said():
    sent = {
        "a.py": b"#" * 60_000,
        "b.py": 2_000_000,
        "c.txt": b"import gc",
        "d/e.py": b"import gc",
        "f.py": b"x = (",
    }
    assert reaches(sent) == ("a.py was not read: there is too much of it", "d/e.py:1 import gc")
    assert reaches({"a.py": b"x = " + b"1 + " * 10_000 + b"1"}) == ("a.py:1 nested too deeply to be read",)
    many = reaches({"a.py": b"import gc\n" * (MOST + 3)})
    assert many[MOST:] == ("3 more",)
    several = {f"{name}.py": b"import gc\n" + b"#" * 49_000 for name in "abcdef"}
    assert "was not read" in reaches(several)[-1]


def test_somebody_has_to_look_and_the_points_stay():
    record = SubmissionRecord("eve", "key", (), reaches=("model.py:3 sys.modules",))
    assert record.to_look == ["code that reaches beyond its exercises: model.py:3 sys.modules"]
    assert SubmissionRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    old = record.to_json()
    del old["reaches"]
    assert SubmissionRecord.from_json(old).to_look == []
