"""first_look(): train on one rank, then on two, with a line that goes along; then losses, times and pictures."""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from lab.first_look.picture import curves
from lab.notebook import session
from lab.notebook.card import framed, note_card
from lab.notebook.drawing import whole_number
from lab.notebook.show import Card, Said, Shown, one_sentence
from lab.ranks.server import server

if TYPE_CHECKING:
    from torch import Tensor

IMAGES, VALID_IMAGES = 2_048, 512
PICTURE = 64  # pixels; an image has 32
MOST_RANKS, MOST_EPOCHS = 4, 30
TIMEOUT = 240.0  # seconds; on two cores one rank needs three
PERIOD = 0.1  # seconds between two looks at how far the ranks are


class Example(NamedTuple):
    """One validation image, what it shows and what the network says."""

    image: str  # PNG, base64
    shows: str
    says: str
    sure: int  # per cent


@one_sentence
def first_look(ranks: Sequence[int] = (1, 2), epochs: int = 5) -> None:
    """Train a small network on as many ranks as each of `ranks` says, one after the other, and compare."""
    for number in ranks:
        whole_number("ranks", number, 1, MOST_RANKS)
    whole_number("epochs", epochs, 1, MOST_EPOCHS)
    if session.graded_elsewhere() or session.judged_by_nbgrader():
        print("Not run while it is graded.")
        return
    shown = Shown(note_card("drawing the images …"))
    try:
        session.warm()
        shown.replace(_compare(ranks, epochs, lambda line: shown.replace(note_card(line))))
    except KeyboardInterrupt:
        shown.replace(note_card("Stopped. Nothing was left running."))
        raise


def _compare(ranks: Sequence[int], epochs: int, tell: Callable[[str], None]) -> Card:
    from lab.training.data.shapes import CLASSES, TRAIN_SEED, VALID_SEED, draw

    images, labels = draw(IMAGES, TRAIN_SEED)
    valid_images, valid_labels = draw(VALID_IMAGES, VALID_SEED)
    order = _one_of_each(valid_labels.tolist(), len(CLASSES))
    valid_images, valid_labels = valid_images[order], valid_labels[order]
    given = {
        "images": images,
        "labels": labels,
        "valid_images": valid_images,
        "valid_labels": valid_labels,
        "classes": len(CLASSES),
        "shown": len(CLASSES),
        "epochs": epochs,
    }
    runs = {number: _train(number, given, tell) for number in ranks}
    last = runs[ranks[-1]]
    examples = [
        Example(_png(image), CLASSES[label], CLASSES[guess], round(100 * sure))
        for image, label, guess, sure in zip(
            valid_images, valid_labels.tolist(), last["guesses"], last["sure"], strict=False
        )
    ]
    return _card(runs, examples)


def _train(ranks: int, given: dict[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the group, and tell meanwhile which epoch it has come to. Returns what rank 0 returned."""
    title = f"{ranks} rank{'s' * (ranks != 1)}"
    tell(f"{title}: starting …")
    with tempfile.TemporaryDirectory(prefix="lab-first-look-") as folder, ThreadPoolExecutor(1) as pool:
        lines = Path(folder) / "epochs"
        inputs = {**given, "lines": str(lines)}
        going = pool.submit(
            server().run, "lab.first_look.training:train", ranks, code=None, inputs=inputs, timeout=TIMEOUT
        )
        said = 0
        try:
            while not wait([going], timeout=PERIOD).done:
                done = lines.read_text(encoding="utf-8").splitlines() if lines.is_file() else []
                if len(done) > said:
                    said = len(done)
                    epoch, loss, seconds = json.loads(done[-1])
                    tell(f"{title}: epoch {epoch} of {given['epochs']}, loss {loss:.2f}, {seconds:.1f} s …")
        except KeyboardInterrupt:
            server().end_groups()
            raise
        result = going.result()
    if not result.ok:
        raise Said(f"{title}: the training did not come to its end: {result.first_failed}")
    return dict(result.values[0])


def _card(runs: dict[int, dict[str, Any]], examples: Sequence[Example]) -> Card:
    rows = [
        (
            f"{number} rank{'s' * (number != 1)}",
            f"{run['seconds'][-1]:.1f} s",
            f"{run['losses'][0]:.3f}",
            f"{run['losses'][-1]:.3f}",
            f"{100 * run['accuracy']:.0f}%",
        )
        for number, run in runs.items()
    ]
    head = ("", "time", "loss, first epoch", "loss, last epoch", "right on new images")
    right = sum(one.shows == one.says for one in examples)
    text = ["  ".join(head).strip(), *("  ".join(row) for row in rows)]
    text += [f"{one.shows}: says {one.says}, {one.sure}% sure" for one in examples]
    drawn = {name: (run["seconds"], run["losses"]) for (name, *_), run in zip(rows, runs.values(), strict=True)}
    return framed(
        "first_look.html",
        "a training on one rank and on more",
        "\n".join(text),
        head=head,
        rows=rows,
        curves=Markup(curves(drawn)),  # its words are ours
        examples=examples,
        right=right,
    )


def _one_of_each(labels: Sequence[int], classes: int) -> list[int]:
    """An order of the images in which the first ones show one class each."""
    first = [labels.index(label) for label in range(classes)]
    return first + [number for number in range(len(labels)) if number not in first]


def _png(image: Tensor) -> str:
    """Bytes [3, 32, 32] as a PNG, enlarged, in base64."""
    from PIL import Image

    buffer = io.BytesIO()
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    picture.resize((PICTURE, PICTURE), Image.Resampling.NEAREST).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
