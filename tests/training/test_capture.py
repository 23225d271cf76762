"""The captured step as far as it can be tested without a GPU; gpu_capture.py does the rest."""

import itertools

import pytest
import stepping_observers
import tiny_run
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

from lab.base.errors import UsageError, UserError
from lab.runs import options
from lab.runs.options.precision import CAPTURE_WARM_UP
from lab.training.run import Run
from lab.training.stepping import capture, meter
from lab.training.stepping import stepper as stepping
from lab.training.stepping.capture import capturable
from lab.training.stepping.stepper import Stepper


@pytest.mark.parametrize(
    ("argv", "device", "part"),
    [
        ([], "cpu", "--capture records a CUDA graph, so it needs a GPU"),
        (["--strategy", "fsdp1"], "cuda", "cannot record --strategy fsdp1, .* use --strategy fsdp"),
        (["--model", "mine.py:Net", "--checkpoint-activations"], "cuda", "for the lab's own networks only"),
    ],
)
def test_what_cannot_be_captured_is_refused_with_the_repair(argv, device, part):
    with pytest.raises(UsageError, match=part):
        options.resolve(options.parse(["--capture", *argv]), 2, device=device, default_precision="bf16")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(("strategy", "ranks"), [("none", 1), ("ddp", 2), ("fsdp", 2)])
def test_the_others_can_be_captured(strategy, ranks, precision):
    argv = ["--capture", "--strategy", strategy, "--precision", precision, "--clip-norm", "1"]
    args, warnings = options.resolve(options.parse(argv), ranks, device="cuda")
    assert args.capture
    assert warnings == []


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


def train(optimizer_name: str, *, capturable: bool, steps: int = 5) -> tuple[nn.Module, Stepper]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    stepper = Stepper(
        model, OPTIMIZERS[optimizer_name](model.parameters()), rate_factor=lambda step: 1 / (1 + step)
    )
    if capturable:
        stepper.make_capturable()
    for step in range(steps):
        stepper.optimizer.zero_grad()
        model(torch.ones(2, 4) * step).square().sum().backward()
        stepper.optimizer.step()
    return model, stepper


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_capturable_optimizer_takes_the_same_steps(name):
    plain, captured = train(name, capturable=False), train(name, capturable=True)
    torch.testing.assert_close(captured[0].state_dict(), plain[0].state_dict())
    group = captured[1].optimizer.param_groups[0]
    rate = group["lr"]
    assert rate.item() == pytest.approx(plain[1].optimizer.param_groups[0]["lr"])
    assert group["fused"]
    assert captured[1].rates == plain[1].rates
    captured[1].optimizer.zero_grad()
    captured[0](torch.ones(2, 4)).sum().backward()
    captured[1].optimizer.step()
    assert group["lr"] is rate  # in the same memory, where the graph reads it


@pytest.mark.parametrize(
    "settings", [{"momentum": 0.0}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}], ids=str
)
def test_sgd_on_the_shards_of_fsdp_takes_the_same_steps(rank_server, settings):
    result = rank_server.run(
        stepping_observers.sharded_sgd, 3, code=tiny_run.SOLUTIONS, inputs=settings, timeout=60
    )
    for eager, captured in result.values:
        assert len(eager) == len(captured) == (8 if settings["momentum"] else 4)
        torch.testing.assert_close(captured, eager)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_checkpoint_has_the_settings_of_an_eager_run(name):
    plain, captured = train(name, capturable=False)[1], train(name, capturable=True)[1]
    with captured.released():
        assert captured.optimizer.state_dict()["param_groups"] == plain.optimizer.state_dict()["param_groups"]
    assert isinstance(captured.optimizer.param_groups[0]["lr"], torch.Tensor)


def test_an_optimizer_that_cannot_be_captured_is_named():
    model = nn.Linear(4, 3)
    stepper = Stepper(model, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(
        UserError, match=r"cannot record the steps of LBFGS, .* use --optimizer sgd, adam or adamw"
    ):
        stepper.make_capturable()


class Rerun:
    """Stands for a recorded graph: its replay runs the step anew, with the CPU's part switched off."""

    recording = False
    replays = 0

    def __init__(self, eager, images, labels, loss) -> None:
        self.eager, self.images, self.labels, self.loss = eager, images, labels, loss

    def replay(self) -> None:
        Rerun.replays += 1
        Rerun.recording = True
        self.loss.copy_(self.eager(self.images, self.labels))
        Rerun.recording = False

    def reset(self) -> None:
        pass


def record(self, eager, images, labels):
    """In the place of Capture._record."""
    static = images.clone(), labels.clone(), torch.zeros(())
    self._meter.labels = static[1]
    return capture.Recorded(Rerun(eager, *static), *static)


class RerunForward:
    """The same for a batch of an evaluation."""

    def __init__(self, eager, images, logits) -> None:
        self.eager, self.images, self.logits = eager, images, logits
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        self.logits.copy_(self.eager(self.images))

    def reset(self) -> None:
        pass


def record_forward(self, eager, images):
    """In the place of Capture._record_forward."""
    static = images.clone(), torch.zeros(len(images), 3)
    self._meter.count_evaluated(len(images))  # as the model's hook does while it is recorded

    def silently(images):
        counted = self._meter._evaluated
        logits = eager(images)
        self._reshard()
        self._meter._evaluated = counted
        return logits

    return capture.RecordedForward(RerunForward(silently, *static), *static)


@pytest.fixture
def on_cpu(monkeypatch, tmp_path):
    """Let --capture think that the CPU records graphs."""
    Rerun.replays = 0
    monkeypatch.setattr("lab.runs.options.precision._check_capture", lambda *args: None)
    monkeypatch.setattr(capture.Capture, "_record", record)
    monkeypatch.setattr(capture.Capture, "_record_forward", record_forward)
    for name in ("Stream", "set_stream", "default_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda argument: None)
    for module in (meter, stepping):
        monkeypatch.setattr(module, "is_recording", lambda: Rerun.recording)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def train_step(model, optimizer, images, labels, run):
    optimizer.zero_grad()
    with run.autocast():
        loss = nn.functional.cross_entropy(model(images), labels)
    run.backward(loss)
    optimizer.step()
    return loss.detach()


def run_epochs(tmp_path, *argv: str, step=capturable(train_step), samples: int = 160):  # noqa: B008
    """Two epochs of 20 steps: the losses as the loop saw them, the training accuracies, the run's own mean of the
    losses, and the weights.
    """
    args = options.parse(["--strategy", "none", "--output-dir", str(tmp_path), "--epochs", "2", *argv])
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(samples, 4), torch.arange(samples) % 3), batch_size=8)
    model = nn.Linear(4, 3)
    kept, accuracies = [], []
    with Run(args, torch.device("cpu")) as run:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        run.begin(model, optimizer, loader)
        for epoch in run.epochs():
            kept += [step(model, optimizer, *batch, run) for batch in run.batches(loader)]
            accuracies.append(run.record(epoch, 1.0, 0.5, 0.5).train_accuracy)
        mean = run._loop.meter.mean_loss()
    return [loss.item() for loss in kept], accuracies, mean, model.state_dict()


def test_a_replay_counts_what_an_eager_step_counts(on_cpu, tmp_path):
    argv = ("--schedule", "cosine", "--warmup-epochs", "0.5", "--run-id")
    eager = run_epochs(tmp_path, *argv, "eager")
    captured = run_epochs(tmp_path, *argv, "captured", "--capture")
    assert Rerun.replays == 40 - CAPTURE_WARM_UP
    assert captured[0] == pytest.approx(eager[0], abs=1e-6)  # each loss in memory of its own
    assert captured[1] == eager[1]
    assert captured[2] == pytest.approx(eager[2], abs=1e-6)
    torch.testing.assert_close(captured[3], eager[3])


def test_a_smaller_last_batch_is_an_eager_step(on_cpu, tmp_path):
    eager = run_epochs(tmp_path, "--run-id", "eager", samples=164)
    captured = run_epochs(tmp_path, "--run-id", "captured", "--capture", samples=164)
    assert Rerun.replays == 42 - CAPTURE_WARM_UP - 2
    assert captured[0] == pytest.approx(eager[0], abs=1e-6)
    assert captured[1] == eager[1]
    torch.testing.assert_close(captured[3], eager[3])


def test_a_step_that_is_not_capturable_is_named(on_cpu, tmp_path):
    with pytest.raises(UserError, match=r"needs @capturable in the line before it"):
        run_epochs(tmp_path, "--capture", step=train_step)


def test_a_run_too_short_to_be_captured_says_so(on_cpu, tmp_path, capsys):
    run_epochs(tmp_path, "--capture", samples=40)
    assert "warning: --capture had no effect: the run ended within its first 11 steps" in capsys.readouterr().out


def test_an_evaluation_sees_what_replays_did_under_fsdp(on_cpu, tmp_path, monkeypatch):
    """The root keeps what it has gathered for an evaluation until the next backward pass, and a replay has none
    that Python knows of.
    """
    model = fully_shard(nn.Linear(4, 3), mesh=init_device_mesh("cpu", (1,)))

    def replay(graph):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.to_local().add_(1)  # behind Python's back

    def look() -> torch.Tensor:
        model.eval()
        with torch.no_grad():
            logits = model(torch.ones(2, 4))
            model(torch.ones(1, 4))  # of another size, so that it is no replay, and leaves the root gathered
        model.train()
        return logits

    def recorded_from_shards(self, *arguments):
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
        return record(self, *arguments)

    monkeypatch.setattr(Rerun, "replay", replay)
    monkeypatch.setattr(capture.Capture, "_record", recorded_from_shards)
    args = options.parse(["--strategy", "fsdp", "--capture", "--output-dir", str(tmp_path), "--epochs", "1"])
    loader = DataLoader(TensorDataset(torch.randn(160, 4), torch.arange(160) % 3), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = capturable(train_step)
    seen = []
    with Run(args, torch.device("cpu")) as run:
        run.begin(model, optimizer, loader)
        for _ in run.epochs():
            for images, labels in run.batches(loader):
                seen.append(look())
                step(model, optimizer, images, labels, run)
    for before, after in itertools.pairwise(seen[CAPTURE_WARM_UP:]):
        torch.testing.assert_close(after, before + 5)  # four weights of 1, and the bias


def test_replays_leave_ddp_as_training_steps_do(on_cpu, tmp_path, monkeypatch):
    """DDP sends rank 0's BatchNorm statistics to the others before the first pass of an evaluation, if its own
    forward() was called in training since the last one. After a replay it must do so too; in it there is no need.
    """
    monkeypatch.setattr(Rerun, "replay", lambda graph: None)
    seen, recorded = [], []

    def noting(self, *arguments):
        recorded.append(model.require_forward_param_sync)
        return record(self, *arguments)

    monkeypatch.setattr(capture.Capture, "_record", noting)
    args = options.parse(["--strategy", "ddp", "--capture", "--output-dir", str(tmp_path), "--epochs", "1"])
    loader = DataLoader(TensorDataset(torch.randn(160, 4), torch.arange(160) % 3), batch_size=8)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = capturable(train_step)
    with Run(args, torch.device("cpu")) as run:
        run.begin(model, optimizer, loader)
        for _ in run.epochs():
            for images, labels in run.batches(loader):
                step(model, optimizer, images, labels, run)
                seen.append(model.require_forward_param_sync)
                with torch.no_grad():
                    model(images)  # as an evaluation would between any two steps
                assert not model.require_forward_param_sync
    assert recorded == [False]
    assert seen == [True] * 20


WINDOWS = ("--accumulate", "2", "--global-batch-size", "16", "--run-id")


def test_the_first_and_the_last_micro_batch_of_a_step_are_recorded_apart(on_cpu, tmp_path):
    eager = run_epochs(tmp_path, *WINDOWS, "eager", samples=320)
    captured = run_epochs(tmp_path, *WINDOWS, "captured", "--capture", samples=320)
    assert Rerun.replays == 2 * (40 - CAPTURE_WARM_UP)
    assert captured[0] == pytest.approx(eager[0], abs=1e-6)
    torch.testing.assert_close(captured[3], eager[3])


def test_a_smaller_micro_batch_is_refused_between_graphs_that_add_up_gradients(on_cpu, tmp_path):
    with pytest.raises(UserError, match=r"8 images were recorded, and now there are 4"):
        run_epochs(tmp_path, *WINDOWS, "captured", "--capture", samples=316)


def evaluate_between_steps(tmp_path, model: nn.Module, strategy: str, sizes: list[int], rounds: int = 3):
    """Rounds of a captured step and an evaluation; the logits of all evaluations, those they should be, and what
    was replayed and counted.
    """
    argv = ["--strategy", strategy, "--capture", "--output-dir", str(tmp_path), "--epochs", "1"]
    loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.arange(24) % 3), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    step = capturable(train_step)
    got, wanted = [], []
    with Run(options.parse(argv), torch.device("cpu")) as run:
        run.begin(model, optimizer, loader)
        for _ in run.epochs():
            for images, labels in itertools.islice(run.batches(loader), rounds):
                step(model, optimizer, images, labels, run)
                model.eval()
                with torch.no_grad():
                    for size in sizes:
                        batch = torch.randn(size, 4)
                        got.append(model(batch))
                        wanted.append(model._call_impl.__self__._plain(batch))
                        run._loop.meter._evaluated -= size
                model.train()
        recorded = run.capture._forward
    return got, wanted, recorded.graph.replays if recorded else 0, run._loop.meter._evaluated


@pytest.mark.parametrize(
    ("strategy", "replays"),
    [
        ("none", 3 * 3 - capture.EVALUATION_WARM_UP),  # all of the usual size but the first ones
        ("ddp", 3 * 2 - (capture.EVALUATION_WARM_UP - 1)),  # and, after each step, the one with the broadcast
        ("fsdp", 3 * 3 - capture.EVALUATION_WARM_UP),
    ],
)
def test_an_evaluation_is_replayed_with_the_weights_of_the_moment(on_cpu, tmp_path, strategy, replays):
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    if strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif strategy == "fsdp":
        model = fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    got, wanted, replayed, counted = evaluate_between_steps(tmp_path, model, strategy, [8, 8, 8, 5])
    torch.testing.assert_close(got, wanted)
    assert replayed == replays
    assert counted == 3 * (8 + 8 + 8 + 5)
