"""The templates of lab/templates: what a student wrote is text on every page, never markup, never a control."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from lab.base.html import environment, render
from lab.base.paths import PACKAGE
from lab.course.books import GradedCell
from lab.course.feedback_page import feedback_page
from lab.course.final.marking import marking_page
from lab.course.final.rows import FinalRow
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.people.lateness import Lateness
from lab.course.people.roster import Person
from lab.course.report_page import report_page
from lab.course.similar.pairs import Alike, Pair
from lab.grading.diagnosis import Blocked, Diagnosis, Failed, LabError, NotStarted, Outcome, Passed
from lab.grading.looks import LOOKS
from lab.grading.suite import CheckResult, ExerciseResult
from lab.grading.trace.why import CheckTold, GroupTold, Row
from lab.sweep.draw.report_tables import Table
from lab.syllabus.syllabus import syllabus

TEMPLATES = sorted(path.name for path in (PACKAGE / "templates").iterdir())
PIECES = {"code.html", "exercise.html", "card.css", "course.css", "listing.css"}  # shown as parts of the others
EVIL = "<script>alert(1)</script><img src=x onerror=f()> \"'&amp;</title></style>{{ 7 }}\x1b[31m\x07\u202eend"
SHOWN = EVIL.replace("\x1b", "�").replace("\x07", "�").replace("\u202e", "�")


class Page(HTMLParser):
    """Tags with the names of their attributes, and all the text in and between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.texts += [value or "" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(("/" + tag,))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def record(text: str) -> SubmissionRecord:
    """Every outcome, with the text wherever a student's code has a say."""
    found = [
        OutcomeRecord(text, "failed", text, text, text, text),
        OutcomeRecord(text, "not started", detail=text),
    ]
    found += [
        OutcomeRecord(text, "blocked", detail=text),
        OutcomeRecord(text, "lab error", detail=text),
        OutcomeRecord(text, "passed"),
    ]
    marks = tuple(
        ExerciseMark(exercise.id, text, None if one.outcome == "lab error" else 1.0, 8, one, (one, found[-1]))
        for exercise, one in zip(syllabus().exercises, found, strict=False)
    )
    return SubmissionRecord(
        text,
        "key",
        marks,
        remarks=(text,),
        unread=text,
        lab=text,
        answers={"a": [("book.ipynb", text)]},
        code={"model.py": text},
    )


def feedback(text: str) -> str:
    return feedback_page(record(text), {"book.ipynb": [GradedCell("a", 1.0, True, f"Why `{text}` {text}?", "")]})


def result(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LAB_GRADING", "1")  # nothing is started
    from lab.notebook.card import result_card

    exercise = dataclasses.replace(syllabus()["3.2"], title=text)
    failed = Failed(Diagnosis("x", saw=text, means=text, look=text))
    outcomes: tuple[Outcome, ...] = (
        failed,
        failed,
        NotStarted(text),
        Blocked(text),
        LabError(text, text),
        Passed(),
    )
    checks = tuple(CheckResult(text, outcome, 0.1, ((0, text),)) for outcome in outcomes)
    cards = [ExerciseResult(exercise, outcome, checks, 0.1) for outcome in (failed, Blocked(text), Passed())]
    return "".join(result_card(one, Path(text.replace("/", "")), exercise).html for one in cards)


def scaling(text: str) -> str:
    return render(
        "scaling.html",
        title=text,
        runs=1,
        done=1,
        headlines=[text],
        figures=[(text, "png", text)],
        sections=[(text, [Table(text, (text,), ((text,),), text), Table(text, (text,), (), text)])],
        commands=[text],
    )


def final(text: str) -> list[FinalRow]:
    """Who handed in, and who did not."""
    person = Person(text, text, text, text, text, text)
    return [FinalRow(person, text, 1.0, 1.0, 2.0, Lateness(None, None), (text,), (text,)), FinalRow(person)]


def final_page(text: str) -> str:
    values = {"rows": final(text), "pages": {text: text}, "marking": {text: text}, "due": None}
    return render("final.html", title=text, **values)


def marking(text: str) -> str:
    books = {"book.ipynb": [GradedCell("answer-a", 1.0, True, f"Why `{text}` {text}?", "")]}
    one = dataclasses.replace(record(text), answers={"answer-a": [("book.ipynb", text)]})
    return marking_page(one, final(text)[0], books, {"a": {"answer": text, "full": text, "half": text}})


def similar(text: str) -> str:
    pair = Pair((text, text), (Alike(text, 1.0, 1.0, frozenset()),))
    shown = [(pair.modules[0], [[(text, True), (text, False)]] * 2)]
    people = {text: Person(text, text)}
    values = {"students": 2, "pairs": [(pair, shown)], "highest": 1.0, "usual": 0.0, "least": 0.3}
    return render("similar.html", title=text, people=people, unread=[(text, text)], old=[text], **values)


def question(text: str) -> str:
    """All questions, one that is asked, and one that was answered."""
    asked = {"text": text, "code": text, "options": [text]}
    one = {"names": [], "asked": asked, "name": text, "unit": text, "example": text}
    return (
        card("question.html", text, names=[(1, text)], right=[text])
        + card("question.html", text, judged=None, **one)
        + card("question.html", text, judged={"right": False, "sentence": text}, **one)
    )


def why(text: str) -> CheckTold:
    row = Row(text, text, text, text)
    return CheckTold(text, [GroupTold(text, [(text, text)], [row], [row], 3)], text)


def card(template: str, text: str, **values: object) -> str:
    return render(template, label=text, colour="#000", looks=LOOKS, **values)


def pages(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], str]]:
    exercise = dataclasses.replace(syllabus()["3.2"], title=text, hints=(text, text))
    progress = {"summary": text, "exercises": [exercise], "states": {exercise.id: "passed"}, "following": exercise}
    progress |= {"more": [exercise], "more_summary": text}
    return {
        "answers.html": lambda: (
            card("answers.html", text, questions=[(text, True)])
            + card("answers.html", text, questions=(), question=text, answer=text)
        ),
        "card.html": lambda: card("card.html", text, body=text),
        "class_report.html": lambda: report_page([record(text)]),
        "feedback.html": lambda: feedback(text),
        "final.html": lambda: final_page(text),
        "first_look.html": lambda: card(
            "first_look.html",
            text,
            head=[text],
            rows=[[text, text]],
            curves=text,
            right=1,
            examples=[{"shows": text, "says": text, "image": text, "sure": 7}],
        ),
        "hints.html": lambda: card("hints.html", text, exercise=exercise, numbers=[1, 2], more=text),
        "marking.html": lambda: marking(text),
        "nbgrader.html": lambda: "".join(
            render("nbgrader.html", mark=mark, looks=LOOKS) for mark in record(text).exercises
        ),
        "note.html": lambda: card("note.html", text),
        "why.html": lambda: card("why.html", text, exercise=exercise, checks=[why(text)], sentences=[text]),
        "page.html": lambda: render("page.html", title=text),
        "question.html": lambda: question(text),
        "ranks.html": lambda: card(
            "ranks.html",
            text,
            title=text,
            seconds=0.1,
            world_size=1,
            table=[(text, [text])],
            printed=[text],
            lines=[(text, text)],
            trace=text,
        ),
        "result.html": lambda: result(text, monkeypatch),
        "results.html": lambda: card("results.html", text, table=text, figures=[(text, text, text)]),
        "scaling.html": lambda: scaling(text),
        "similar.html": lambda: similar(text),
        "strip.html": lambda: card(
            "strip.html", text, file_of=lambda _: {"address": text, "name": text}, **progress
        ),
    }


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name not in PIECES])
def test_a_page_shows_an_attack_as_text_and_has_the_tags_of_any_other(name: str, monkeypatch: pytest.MonkeyPatch):
    harmless = Page(pages("words", monkeypatch)[name]())
    html = pages(EVIL, monkeypatch)[name]()
    attacked = Page(html)
    assert attacked.tags == harmless.tags
    assert {c for c in html if unicodedata.category(c) in ("Cc", "Cf", "Cs")} <= {"\n"}
    assert any(SHOWN in text for text in attacked.texts)


@pytest.mark.parametrize(
    "source",
    [
        "{{ x }}",
        '<p title="{{ x }}">',
        "{{ x | upper }}",
        "{{ [x, x] | join('\n') }}",
        "{{ 'a ' ~ x }}",
        "{% macro m(y) %}{{ y }}{% endmacro %}{{ m(x) }}",
        "{% set y %}{{ x }}{% endset %}{{ y }}",
    ],
)
def test_a_value_is_printable_and_escaped_wherever_it_stands(source: str):
    evil = environment().from_string(source).render(x=EVIL)
    plain = environment().from_string(source).render(x="")
    for character in "<>\"'\x1b\x07\u202e":
        assert evil.count(character) == plain.count(character)


def test_lines_stay_lines_and_a_value_that_is_missing_is_an_error():
    assert environment().from_string("{{ x }}").render(x="one\r\n  two\tthree\n") == "one\n  two three"
    with pytest.raises(jinja2.UndefinedError):
        render("note.html", colour="")


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_takes_a_value_out_of_escaping_or_puts_one_where_escaping_does_not_help(name: str):
    source = (PACKAGE / "templates" / name).read_text(encoding="utf-8")
    tree = environment().parse(source)
    assert not {one.name for one in tree.find_all(nodes.Filter)} & {"safe", "forceescape", "tojson", "xmlattr"}
    assert not list(tree.find_all((nodes.EvalContextModifier, nodes.MarkSafe)))  # {% autoescape false %}
    unquoted = re.sub(r'"[^"<>]*"', '""', re.sub(r"{%.*?%}|{#.*?#}", "", source, flags=re.S))
    assert not re.search(r"<[^<>]*{{", unquoted), "in a tag, but outside of quotes"
    styles = [tree] if name.endswith(".css") else [b for b in tree.find_all(nodes.Block) if b.name == "style"]
    shown = [one for style in styles for output in style.find_all(nodes.Output) for one in output.nodes]
    assert all(isinstance(one, nodes.TemplateData) for one in shown), "a value among rules"
