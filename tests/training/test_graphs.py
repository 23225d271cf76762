"""A graph on the CPU obeys the rules of a CUDA graph; on a GPU it is one."""

import math
import runpy
import secrets
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.grading.diagnosis import Diagnosis
from lab.training import new_graph, recording, side_stream, synchronize
from lab.training.stepping.cpu_graph import CPUGraph, RecordingError, is_recording
from lab.training.stepping.graphs import place_of_work

CPU = torch.device("cpu")
EAGER, ALL = 3, 9


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    draw = torch.randn(ALL, 5, 3, 8, 8, generator=generator)
    return [(images, torch.randint(0, 10, (5,), generator=generator)) for images in draw]


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "sgd, rate as a tensor": lambda model: torch.optim.SGD(
        model.parameters(), lr=torch.tensor(0.1), momentum=0.9, fused=True
    ),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_replays_are_the_steps_bit_for_bit(name: str):
    eager, captured = network(), network()
    optimizers = [OPTIMIZERS[name](model) for model in (eager, captured)]
    expected = [take_step(eager, optimizers[0], *batch) for batch in batches()]
    losses = [take_step(captured, optimizers[1], *batch) for batch in batches()[:EAGER]]
    images, labels = (torch.zeros_like(part) for part in batches()[0])
    before = {key: value.clone() for key, value in captured.state_dict().items()}
    graph = new_graph(CPU)
    with recording(graph):
        loss = take_step(captured, optimizers[1], images, labels)
    assert math.isnan(loss)  # nothing is computed yet
    assert all(value.equal(before[key]) for key, value in captured.state_dict().items())
    for batch in batches()[EAGER:]:
        images.copy_(batch[0])
        labels.copy_(batch[1])
        graph.replay()
        losses.append(loss.clone())
    assert torch.stack(losses).equal(torch.stack(expected))
    state = captured.state_dict()
    assert all(value.equal(state[key]) for key, value in eager.state_dict().items())


def test_a_number_is_written_into_the_graph_and_a_tensor_is_read():
    x, rate, number = torch.ones(2), torch.tensor(3.0), 3.0
    graph = new_graph(CPU)
    with recording(graph):
        by_tensor, by_number = x * rate, x * number
    rate.fill_(5.0)
    number = 5.0
    graph.replay()
    assert by_tensor.tolist() == [5.0, 5.0]
    assert by_number.tolist() == [3.0, 3.0]


def test_every_replay_writes_into_the_same_tensors():
    x = torch.zeros(1)
    graph = new_graph(CPU)
    with recording(graph):
        x += 1
        y = x * 10
    assert x.item() == 0
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(y)
    assert [value.item() for value in seen] == [30, 30, 30]


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        (lambda loss, _: loss.item(), ".item() needs"),
        (lambda loss, _: 1 if loss > 1 else 2, "an if or while on a tensor needs"),
        (lambda loss, _: print(loss), "the text of a tensor needs"),
        (lambda loss, _: f"{loss:.3f}", "a tensor in an f-string needs"),
        (lambda loss, _: float(loss), "float() of a tensor needs"),
        (lambda _, many: many.tolist(), ".tolist() needs"),
        (lambda _, many: many.numpy(), ".numpy() needs"),
        (lambda _, many: many.cpu(), ".cpu() needs"),
        (lambda _, many: many.to("cpu"), ".to('cpu') needs"),
        (lambda loss, _: torch.tensor([loss, 1.0]), "tensor() of a list with a tensor in it needs"),
        (lambda _, many: many[many > 1], "index(), for the shape of what it returns"),
        (lambda _, many: many.nonzero(), "nonzero(), for the shape of what it returns"),
        (lambda _, many: many.unique(), "for the shape of what it returns"),
        (lambda _, many: torch.equal(many, many), ".item(), or what calls it,"),
    ],
)
def test_what_needs_numbers_on_the_cpu_is_refused(needs: Callable[[Tensor, Tensor], object], word: str):
    loss, many, graph = torch.tensor(2.5), torch.arange(4.0), CPUGraph()

    def record() -> None:
        with recording(graph):
            loss.add_(1)
            needs(loss, many)

    with pytest.raises(RecordingError) as refused:
        record()
    assert word in str(refused.value)
    assert loss.item() == 2.5  # what had been done was put back
    assert not is_recording()
    with pytest.raises(RecordingError, match="nothing yet"):
        graph.replay()


def test_indices_are_no_mask():
    many, chosen, graph = torch.arange(4.0), torch.tensor([2, 0]), new_graph(CPU)
    with recording(graph):
        out = many[chosen]
    chosen.copy_(torch.tensor([3, 1]))
    graph.replay()
    assert out.tolist() == [3.0, 1.0]


def test_a_graph_knows_memory_and_no_other_that_a_tensor_is_given_later():
    batch, total = torch.ones(2), torch.zeros(2)
    graph = new_graph(CPU)
    with recording(graph):
        total.add_(batch)
    batch.data = torch.full((2,), 5.0)
    graph.replay()
    assert total.tolist() == [1.0, 1.0]


def test_a_graph_is_recorded_once():
    graph = new_graph(CPU)
    with recording(graph):
        torch.ones(1)
    with pytest.raises(RecordingError, match="recorded already"), recording(graph):
        torch.ones(1)
    assert isinstance(graph, CPUGraph)
    graph.reset()
    with recording(graph):
        torch.ones(1)


def test_where_work_goes_is_known():
    assert place_of_work(CPU) == "default stream"
    with side_stream(CPU):
        assert place_of_work(CPU) == "side stream"
    with recording(new_graph(CPU)):
        assert place_of_work(CPU) == "graph"
    assert place_of_work(CPU) == "default stream"
    synchronize(CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("mistake", ["", "return static_loss", "optimizer.zero_grad() # outside"])
def test_the_check_of_8_4_records_a_cuda_graph(mistake: str, root: Path, tmp_path: Path, monkeypatch):
    """The reference passes on a GPU, and mistakes come out as they do on the CPU.

    But for inputs that are not copied in: nothing holds the recorded ones then, a real graph reads what is there
    by now, and CUDA ends the process. The check on the CPU's graph comes first, and names it.
    """
    from lab.checks.common.look import Look
    from lab.checks.common.tiny import TinyNet, fresh_generator
    from lab.checks.fast.checks import sent
    from lab.checks.fast.draw import draw_training
    from lab.checks.fast.judge_capture import judge_capture
    from lab.checks.fast.observe_capture import capture

    text = (root / "solutions" / "fast.py").read_text()
    if mistake.startswith("return"):
        text = text.replace("return static_loss.clone()", mistake)
        expected = "loss-not-cloned"
    elif mistake:
        text = text.replace("        optimizer.zero_grad(set_to_none=True)\n", "")
        text = text.replace(
            "            step()\n    graph", "            optimizer.zero_grad()\n            step()\n    graph"
        )
        text = text.replace("        graph.replay()", "        optimizer.zero_grad()\n        graph.replay()")
        expected = "cleared-outside"
    (tmp_path / "fast.py").write_text(text)
    fast = SimpleNamespace(**runpy.run_path(str(tmp_path / "fast.py")))
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * size)
    training = draw_training(fresh_generator(), world_size=1)
    device = torch.device("cuda", 0)
    net = TinyNet(training.weights, batchnorm=True).to(device)
    rank = SimpleNamespace(rank=0, code=tmp_path)
    report = capture(rank, fast.capture_step, sent(training), net, net, device)
    look = Look(tmp_path, "fast.py", "capture_step")
    if not mistake:
        judge_capture(look, [report], training)
        return
    with pytest.raises(Diagnosis) as found:
        judge_capture(look, [report], training)
    assert found.value.name == expected
