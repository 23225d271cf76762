"""The checks of 4.2 accept different right answers and name what is wrong with the others."""

from pathlib import Path

import pytest
from answers.bank import SOLUTIONS, outcome_of, verdict, with_answer

from lab.grading.diagnosis import Failed

BROADCAST = """
model.to(device)
for tensor in [*model.parameters(), *model.buffers()]:
    dist.broadcast(tensor.detach(), src=0)
"""
POLICY = """
policy = root = MixedPrecisionPolicy()
if precision == "bf16":
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    root = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    shard_batchnorms(model, init_device_mesh(device.type, (dist.get_world_size(),)))
"""
SHARD = """
for block in model.blocks:
    fully_shard(block, mp_policy=policy)
return fully_shard(model, mp_policy=root)
"""

RIGHT = {
    "the default mesh": BROADCAST + POLICY + SHARD,
    "weights sent as objects": """
        state = [model.state_dict()]
        dist.broadcast_object_list(state, src=0)
        model.load_state_dict(state[0])
        model.to(device)
        """
    + POLICY
    + SHARD,
    "broadcast in no_grad": """
        model = model.to(device)
        with torch.no_grad():
            for p in model.state_dict().values():
                dist.broadcast(p, 0)
        """
    + POLICY
    + SHARD,
    "torch's own helper": """
        from torch.distributed.utils import _sync_module_states
        model.to(device)
        _sync_module_states(model, dist.group.WORLD, 2**20, src=0, params_and_buffers_to_ignore=set())
        """
    + POLICY
    + SHARD,
    "no resharding after the forward pass": BROADCAST
    + POLICY
    + """
        kwargs = {"mesh": init_device_mesh(device.type, (dist.get_world_size(),)), "reshard_after_forward": False}
        for block in reversed(model.blocks):
            fully_shard(block, **kwargs, mp_policy=policy)
        fully_shard(model, **kwargs, mp_policy=root)
        return model
        """,
    "finer units": BROADCAST
    + POLICY
    + """
        for module in model.modules():
            if isinstance(module, nn.Linear):
                fully_shard(module, mp_policy=policy)
        """
    + SHARD,
    "bf16 logits": BROADCAST + POLICY.replace(", output_dtype=torch.float32", "") + SHARD,
    "its own care of BatchNorm": BROADCAST
    + """
        policy = root = MixedPrecisionPolicy()
        if precision == "bf16":
            policy = root = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for module in model.modules():
            if "BatchNorm" in type(module).__name__:
                fully_shard(module, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
        """
    + SHARD,
}

ROOT = "return fully_shard(model, mp_policy=root)"

WRONG = {
    "nothing": ("not-sharded", BROADCAST + "return model"),
    "DDP": ("not-sharded", BROADCAST + "return nn.parallel.DistributedDataParallel(model)"),
    "FSDP1": ("fsdp1-not-fsdp2", BROADCAST + "return FullyShardedDataParallel(model, device_id=device)"),
    "no return": ("nothing-returned", BROADCAST + POLICY + SHARD.replace("return ", "")),
    "a pair": ("not-a-model", BROADCAST + POLICY + SHARD.replace("return ", "") + "return model, device"),
    "a copy": ("sharded-a-copy", "import copy\nmodel = copy.deepcopy(model)" + BROADCAST + POLICY + SHARD),
    "only the root": ("only-root-sharded", BROADCAST + POLICY + ROOT),
    "only the blocks": (
        "root-not-sharded",
        BROADCAST + POLICY + SHARD.replace(ROOT, "return model"),
    ),
    "root first": (
        "root-before-blocks",
        BROADCAST + POLICY + "fully_shard(model)\nfor b in model.blocks: fully_shard(b)\nreturn model",
    ),
    "one block": ("block-left-out", BROADCAST + POLICY + "fully_shard(model.blocks[0])\n" + ROOT),
    "a mesh of one": (
        "wrong-shards",
        BROADCAST
        + POLICY
        + """
        from torch.distributed.device_mesh import DeviceMesh
        mesh = DeviceMesh(device.type, [[r] for r in range(dist.get_world_size())], mesh_dim_names=("a", "b"))
        for block in model.blocks:
            fully_shard(block, mesh=mesh["b"])
        return fully_shard(model, mesh=mesh["b"])
        """,
    ),
    "hybrid": (
        "replicated",
        BROADCAST
        + POLICY
        + """
        mesh = init_device_mesh(device.type, (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
        """,
    ),
    "no broadcast": ("ranks-start-apart", "model.to(device)\n" + POLICY + SHARD),
    "broadcast of copies": (
        "ranks-start-apart",
        "model.to(device)\nfor p in model.parameters(): dist.broadcast(p.data.clone(), src=0)\n" + POLICY + SHARD,
    ),
    "broadcast from the last rank": (
        "weights-changed",
        BROADCAST.replace("src=0", "src=dist.get_world_size() - 1") + POLICY + SHARD,
    ),
    "initialised again": (
        "weights-changed",
        BROADCAST + "for p in model.parameters(): nn.init.ones_(p)\n" + POLICY + SHARD,
    ),
    "no reduction": (
        "gradients-not-reduced",
        BROADCAST + POLICY + SHARD.replace("return ", "")
        + "model.set_requires_gradient_sync(False)\nreturn model",
    ),
    "model in bf16": (
        "parameters-not-fp32",
        BROADCAST + "if precision == 'bf16': model.bfloat16()\n"
        "for block in model.blocks:\n    fully_shard(block)\nreturn fully_shard(model)",
    ),
    "always bf16": (
        "fp32-not-fp32",
        BROADCAST + "shard_batchnorms(model, init_device_mesh('cpu', (dist.get_world_size(),)))\n"
        "policy = root = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n" + SHARD,
    ),
    "precision ignored": (
        "precision-ignored",
        BROADCAST + "for block in model.blocks:\n    fully_shard(block)\nreturn fully_shard(model)",
    ),
    "policy of the root only": (
        "precision-not-everywhere",
        BROADCAST + POLICY + "for block in model.blocks:\n    fully_shard(block)\n" + ROOT,
    ),
    "policy of the blocks only": (
        "precision-not-everywhere",
        BROADCAST + POLICY + SHARD.replace(ROOT, "return fully_shard(model)"),
    ),
    "blocks hand out fp32": (
        "blocks-hand-out-fp32",
        BROADCAST + POLICY + "policy = root\n" + SHARD,
    ),
    "reduced in bf16": (
        "gradients-summed-in-bf16",
        BROADCAST + POLICY.replace(", reduce_dtype=torch.float32", "") + SHARD,
    ),
    "fp16": ("not-bf16", BROADCAST + POLICY.replace("bfloat16", "float16") + SHARD),
    "BatchNorm in bf16": (
        "batchnorm-in-bf16",
        BROADCAST + "\n".join(POLICY.splitlines()[:-1]) + SHARD,
    ),
    "misspelt": ("raised", BROADCAST + POLICY + SHARD.replace("model.blocks", "model.layers")),
}  # fmt: skip


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_a_right_answer_passes(tmp_path: Path, code: str):
    assert verdict("4.2", with_answer(tmp_path, "4.2", dedented(code))) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_gets_its_diagnosis(tmp_path: Path, name: str, code: str):
    assert verdict("4.2", with_answer(tmp_path, "4.2", dedented(code))) == name


def dedented(code: str) -> str:
    """The pieces above have different margins; statements of the eight-space ones move to the left."""
    return "\n".join(line.removeprefix("        ") for line in code.splitlines())


def test_the_solution_passes():
    assert verdict("4.2", SOLUTIONS) == "passed"


def test_a_broadcast_on_one_rank_only_is_a_deadlock(tmp_path: Path):
    code = "if dist.get_rank() == 1: dist.broadcast(next(model.parameters()).detach(), src=0)\n" + POLICY + SHARD
    assert verdict("4.2", with_answer(tmp_path, "4.2", code)) == "collective-on-one-rank"


def test_the_lines_say_what_was_seen(tmp_path: Path):
    outcome = outcome_of("4.2", with_answer(tmp_path, "4.2", WRONG["one block"][1]))
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.lines == (
        "model.blocks.1 is no unit of its own; units: the model, blocks.0.",
        "Every one of model.blocks must be a unit that is gathered just before it is needed.",
        "fsdp_utils.py:55  fully_shard(model.blocks[0])",
    )
