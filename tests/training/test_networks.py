"""The lab's own networks: their shapes and sizes, on ranks, and with checkpointed activations."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiny_vgg import tiny_torchvision_vgg
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import set_checkpoint_early_stop

from lab.base.errors import UsageError, UserError
from lab.ranks.rank import Rank
from lab.ranks.server import server
from lab.runs.options.model import MODELS
from lab.training.networks import NETWORKS, adam_state_bytes, build_network
from lab.training.networks.checkpointing import checkpoint_activations
from lab.training.networks.resnet import ResNet
from lab.training.networks.vgg import VGG, load_weights

CODE = Path(__file__).resolve().parent.parent.parent / "solutions"
TINY = ("resnet", "vgg", "mnist_cnn", "vit")


def tiny(name: str) -> tuple[nn.Module, tuple[int, int, int]]:
    """A small network of the same build, and the shape of its images."""
    if name == "resnet":
        return ResNet(5, widths=(4, 8), blocks_per_stage=1), (3, 32, 32)
    if name == "vgg":
        return VGG(tiny_torchvision_vgg(), 5), (3, 224, 224)
    if name == "vit":
        return build_network("vit", 5, width=64, depth=2), (3, 32, 32)
    return build_network("mnist_cnn", 5), (1, 28, 28)


# Shapes and sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("resnet18", (3, 32, 32), 11_173_962),  # kuangliu/pytorch-cifar has as many
        ("mnist_cnn", (1, 28, 28), 1_199_882),  # pytorch/examples has as many
        ("vit", (3, 32, 32), 2_693_194),
    ],
)
def test_networks_have_the_size_of_their_originals_and_take_any_batch(name, shape, parameters):
    model = build_network(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    for batch in (2, 3):
        assert model(torch.randn(batch, *shape)).shape == (batch, 10)
    with pytest.raises(AssertionError, match=r"expected images \[B, "):
        model(torch.randn(2, 3, 30, 30))


@pytest.mark.parametrize("size", [64, 224])
@pytest.mark.parametrize(("name", "options"), [("resnet18", {}), ("vit", {"width": 64, "depth": 1})])
def test_networks_take_larger_images_when_they_are_told(name, options, size):
    model = build_network(name, image_size=size, **options)
    assert model(torch.randn(2, 3, size, size)).shape == (2, 10)
    with pytest.raises(AssertionError, match=rf"expected images \[B, 3, {size}, {size}\]"):
        model(torch.randn(2, 3, 32, 32))


def test_for_large_images_resnet18_is_torchvisions():
    from torchvision.models import resnet18

    ours, theirs = build_network("resnet18", image_size=224), resnet18(num_classes=10)
    assert sorted(p.shape for p in ours.parameters()) == sorted(p.shape for p in theirs.parameters())


def test_vgg19_is_torchvisions_with_another_head():
    with torch.device("meta"):  # the sizes alone; the weights would take half a gigabyte
        model = build_network("vgg19", 7)
    # torchvision's vgg19 has 143,667,240, of which 4,097,000 in its head for 1000 classes.
    assert sum(parameter.numel() for parameter in model.parameters()) == 143_667_240 - 4_097_000 + 7 * 4097
    assert [len(block) for block in model.blocks] == [5, 5, 9, 9, 9, 5, 3]


@pytest.mark.parametrize("name", TINY)
def test_blocks_hold_most_of_the_parameters(name):
    model, _ = tiny(name)
    in_blocks = sum(parameter.numel() for parameter in model.blocks.parameters())
    assert in_blocks > 0.5 * sum(parameter.numel() for parameter in model.parameters())


def test_the_width_and_depth_of_a_vit_are_chosen():
    model = build_network("vit", width=128, depth=3)
    assert len(model.blocks) == 3
    assert sum(p.numel() for p in model.blocks.parameters()) == 3 * (12 * 128**2 + 13 * 128)
    with pytest.raises(UsageError, match="use a multiple of 64, such as 128"):
        build_network("vit", width=100)


def test_the_command_line_offers_every_network():
    assert set(MODELS) == {"cnn", *NETWORKS}
    with pytest.raises(ValueError, match="unknown model 'alexnet': choose one of cnn, resnet18"):
        build_network("alexnet")


def test_the_memory_of_adam_is_16_bytes_a_parameter_and_parted_by_sharding():
    model = build_network("vit", width=64, depth=1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(1, 3, 32, 32)).sum().backward()
    optimizer.step()
    held = [tensor for p in model.parameters() for tensor in (p, p.grad, *optimizer.state[p].values())]
    held = [tensor for tensor in held if tensor.ndim > 0]  # not the step counters
    size = sum(parameter.numel() for parameter in model.parameters())
    assert adam_state_bytes(size) == sum(tensor.nbytes for tensor in held)
    assert adam_state_bytes(size, shards=4) == adam_state_bytes(size) / 4


# ImageNet weights -------------------------------------------------------------------------------------------


def test_pretrained_weights_are_loaded_and_the_head_is_new(tmp_path):
    trained, blank = tiny_torchvision_vgg(), tiny_torchvision_vgg()
    torch.save(trained.state_dict(), tmp_path / "w.pth")
    load_weights(blank, tmp_path / "w.pth")
    model, images = VGG(blank, 5), torch.randn(1, 3, 224, 224)
    features = nn.Sequential(trained.features, trained.avgpool, nn.Flatten(), trained.classifier[:-1]).eval()
    assert torch.equal(nn.Sequential(*model.blocks).eval()(images), features(images))
    assert model.head.out_features == 5


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "are damaged, or are no weights"),
        (b"<html>not found</html>", "are damaged, or are no weights"),
        (nn.Linear(2, 2), "are damaged, or are no weights"),  # a pickled module: code, not tensors
        ({"features.0.weight": torch.zeros(1)}, "are not those of VGG-19"),
        ([1, 2], "are not those of VGG-19"),
    ],
)
def test_weights_that_cannot_be_used_are_named(tmp_path, content, sentence):
    path = tmp_path / "vgg.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(UserError, match=f"vgg.pth {sentence}"):
        load_weights(tiny_torchvision_vgg(), path)


def test_a_cut_weights_file_is_named(tmp_path):
    path = tmp_path / "vgg.pth"
    torch.save(tiny_torchvision_vgg().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="are damaged"):
        load_weights(tiny_torchvision_vgg(), path)
    with pytest.raises(UserError, match=r"Cannot read the weights .*none.pth: No such file"):
        load_weights(tiny_torchvision_vgg(), tmp_path / "none.pth")


# Checkpointed activations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("early_stop", [True, False])
def test_checkpointed_activations_change_nothing(name, early_stop):
    """The same gradients to the last bit with dropout in use, the same BatchNorm statistics, the same names."""
    model, shape = tiny(name)
    other = copy.deepcopy(model)
    checkpoint_activations(other)
    images = torch.randn(4, *shape)
    for net in (model, other):
        torch.manual_seed(3)
        with set_checkpoint_early_stop(early_stop):  # False: the second pass comes to every BatchNorm's end
            net(images).square().sum().backward()
    assert model.state_dict().keys() == other.state_dict().keys()
    for (key, ours), theirs in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), key
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_checkpointed_activations_are_not_kept():
    def saved_bytes(model: nn.Module) -> int:
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda x: x):
            model(torch.randn(2, 3, 32, 32))
        return sum({tensor.untyped_storage().data_ptr(): tensor.nbytes for tensor in kept}.values())

    model = build_network("vit", width=64, depth=4)
    plain = saved_bytes(model)
    checkpoint_activations(model)
    assert saved_bytes(model) < plain / 5


# On ranks ---------------------------------------------------------------------------------------------------


def gradients_beside_a_twins(rank: Rank) -> dict[str, float]:
    """The largest difference of any gradient from a single process's, for each wrapper."""
    wrappers = {
        "ddp": rank.student("ddp_utils").get_ddp_model,
        "fsdp": rank.student("fsdp_utils").get_fsdp_model,
        "fsdp1": rank.student("fsdp_utils").get_fsdp1_model,
    }
    torch.manual_seed(0)
    twin, shape = tiny(rank.receive())
    twin.double()
    for module in twin.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    images = torch.randn(2 * rank.world_size, *shape, dtype=torch.float64)
    labels = torch.arange(len(images)) % 5
    models = {name: copy.deepcopy(twin) for name in wrappers}
    # Each rank's BatchNorm sees its own part of the batch, so the twin takes the parts one after the other.
    parts = [slice(2 * r, 2 * r + 2) for r in range(rank.world_size)]
    for part in parts:
        (F.cross_entropy(twin(images[part]), labels[part]) / rank.world_size).backward()

    differences = {}
    for name, wrap in wrappers.items():
        model = wrap(models[name], torch.device("cpu"))
        checkpoint_activations(model)
        for _ in range(2):  # the second step finds whatever the first has left behind
            model.zero_grad()
            mine = parts[rank.rank]
            F.cross_entropy(model(images[mine]), labels[mine]).backward()
        differences[name] = largest_difference(model, twin)
    return differences


def largest_difference(model: nn.Module, twin: nn.Module) -> float:
    if type(model).__name__ == "FullyShardedDataParallel":
        with type(model).summon_full_params(model, with_grads=True):
            grads = [parameter.grad.clone() for parameter in model.parameters()]
    else:
        grads = [parameter.grad for parameter in model.parameters()]
        grads = [grad.full_tensor() if isinstance(grad, DTensor) else grad for grad in grads]
    twins = [parameter.grad for parameter in twin.parameters()]
    return max((ours - theirs).abs().max().item() for ours, theirs in zip(grads, twins, strict=True))


@pytest.mark.parametrize("name", TINY)
def test_gradients_on_ranks_with_checkpointed_activations_are_a_single_process_s(name):
    for differences in server().run(gradients_beside_a_twins, 2, code=CODE, inputs=name, timeout=60).values:
        assert differences == pytest.approx({"ddp": 0, "fsdp": 0, "fsdp1": 0}, abs=1e-12)


def checkpointing_under_fsdp_in_bf16(rank: Rank) -> list[bool]:
    """Whether gradients and buffers are the same with checkpointed activations and without."""
    wrap = rank.student("fsdp_utils").get_fsdp_model
    same = []
    for name in ("resnet", "vit"):
        torch.manual_seed(0)
        model, shape = tiny(name)
        images = torch.randn(4, *shape)
        results = []
        for checkpointed in (False, True):
            net = wrap(copy.deepcopy(model), torch.device("cpu"), precision="bf16")
            if checkpointed:
                checkpoint_activations(net)
            for _ in range(2):
                net.zero_grad()
                net(images).square().mean().backward()
            results.append([p.grad.full_tensor() for p in net.parameters()] + list(net.buffers()))
        same.append(all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True)))
    return same


def test_checkpointed_activations_change_nothing_under_fsdp_in_bf16():
    """All BatchNorms are one group there, of which the second pass of a block uses a part."""
    result = server().run(checkpointing_under_fsdp_in_bf16, 2, code=CODE, timeout=60)
    assert result.values == [[True, True]] * 2


def test_dropout_cannot_be_drawn_twice_in_a_recorded_step():
    with pytest.raises(
        UserError, match=r"--capture cannot record --checkpoint-activations of a network with drop"
    ):
        checkpoint_activations(tiny_with_dropout(0.1), captured=True)
    checkpoint_activations(tiny_with_dropout(0.0), captured=True)


def tiny_with_dropout(p: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(p))
    model.blocks = [model]
    return model
