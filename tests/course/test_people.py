"""Who somebody is, by whatever a class and its platforms call them; when they handed in, and what that costs."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lab.base.errors import UsageError, UserError
from lab.course.marks import SubmissionRecord
from lab.course.people.lateness import LATE, ClassRules, LateRule, stamped, time_of
from lab.course.people.roster import Person, Roster
from lab.course.tables import unclear

ZOE = "Zo\u00eb M\u00fcller"
OWN = (
    f'id;name;E-mail;platform id\r\nzmueller;"{ZOE}";zoe@uni.edu;4711\r\njroe;"Roe; ""Jay""";jay@uni.edu;4712\r\n'
)
MOODLE = "First name,Last name,ID number,Email address\nZo\u00eb,M\u00fcller,zmueller,zoe@uni.edu\n"
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Old\n    Points Possible,,,,,10\n"
    '"M\u00fcller, Zo\u00eb",4711,s-1,zmueller,A,3\n"Student, Test",1,,x,A,\n'
)
GERMAN = (
    "Name;Vorname;Matrikelnummer;E-Mail-Adresse;Benutzername\nM\u00fcller;Zo\u00eb;4711;zoe@uni.edu;zmueller\n"
)
NUMBERS = "Nachname;Vorname;Matrikelnummer;E-Mail\nM\u00fcller;Zo\u00eb;zmueller;zoe@uni.edu\n"
BLACKBOARD = "Last Name\tFirst Name\tUsername\tStudent ID\nM\u00fcller\tZo\u00eb\tzmueller\t4711\n"


def saved(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (OWN, "utf-8-sig"),
        (OWN, "cp1252"),
        (OWN, "utf-16"),
        (OWN.replace("\r\n", "\n"), "utf-8"),
        (unicodedata.normalize("NFD", OWN), "utf-8"),
        (CANVAS, "utf-8-sig"),
        (BLACKBOARD, "utf-16"),
        (MOODLE, "utf-8"),
        (GERMAN, "cp1252"),
        (NUMBERS, "utf-8-sig"),
        (NUMBERS.replace("Nachname", "Name"), "utf-8-sig"),
    ],
)
def test_a_roster_is_read_as_spreadsheets_and_platforms_write_it(tmp_path: Path, text: str, encoding: str):
    roster = Roster.read(saved(tmp_path / "roster.csv", text, encoding))
    zoe = roster.people["zmueller"]
    assert (zoe.name, zoe.first, zoe.last) == (ZOE, "Zo\u00eb", "M\u00fcller")
    assert zoe.label == f"{ZOE} (zmueller)"
    assert len(roster.people) == 1 + (text.count("jroe") > 0)
    if "jroe" in roster.people:
        assert roster.people["jroe"].name == 'Roe; "Jay"'
    names = [
        "zmueller", "ZMUELLER", ZOE, unicodedata.normalize("NFD", ZOE), "M\u00fcller, Zo\u00eb",
        "Zo\u00eb_M\u00fcller",
        f"{ZOE}_1234_assignsubmission_file_", "lab_zmueller_attempt_2026-05-01-22-10-05_hw.zip",
    ]  # fmt: skip
    names += ["muellerzoe_LATE_4711_99_hw.zip", "4711"] * (zoe.platform_id == "4711")
    names += ["zoe@uni.edu"] * bool(zoe.email)
    assert [roster.student(name) for name in names] == ["zmueller"] * len(names)
    assert roster.student("M\u00fcller") == "M\u00fcller"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,points\nAnn,3\n", "roster.csv:2: no column is called id; the columns are name, points"),
        (
            "Name;Vorname\nM;Z\n",
            "the columns are name, vorname; known are id, username or student ID (Matrikelnummer)",
        ),
        ("id,name\nann,Ann\n,Bob\n", "roster.csv:3: Bob has no id"),
        ("id,name\nann,Ann\nAnn,Other\n", "roster.csv:3: the id Ann stands in line 2 already"),
        (f"id\n{ZOE}\n", f"roster.csv:2: the id {ZOE} is no name for a file"),
        ("id,name\n", "holds no rows"),
        ("", "holds no rows"),
    ],
)
def test_a_roster_that_cannot_be_used_is_named_with_its_line(tmp_path: Path, text: str, said: str):
    with pytest.raises(UserError) as error:
        Roster.read(saved(tmp_path / "roster.csv", text))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"nowhere\.csv cannot be read"):
        Roster.read(tmp_path / "nowhere.csv")


def test_a_name_that_two_people_have_is_nobodys(tmp_path: Path):
    roster = Roster.read(saved(tmp_path / "r.csv", "id,name\nann1,Ann Lee\nann2,Ann Lee\n"))
    assert roster.student("Ann Lee") == "Ann Lee"
    assert roster.student("ann2") == "ann2"
    assert roster.person("x", "Jo van Dyk") == Person("x", "Jo van Dyk", "Jo van", "Dyk")


def test_of_two_with_one_name_the_platform_s_number_tells_or_a_person_is_asked(tmp_path: Path):
    table = "id,name,platform id\nann1,Ann Lee,11\nann2,Ann Lee,12\njoe,Joe,13\n"
    of = rules(tmp_path, roster=table)
    assert of.roster.student("Ann Lee_12_assignsubmission_file_") == "ann2"
    assert of.roster.find("Ann Lee_13_assignsubmission_file_") is None
    sentence = "several in the roster have the name in Ann Lee_14_assignsubmission_file_: hand it in under the id"
    assert sentence in unclear(SubmissionRecord("Ann Lee_14_assignsubmission_file_", "", ()), of)
    for student in ("ann1", "joe", "Joe_13_assignsubmission_file_", "eve"):
        assert unclear(SubmissionRecord(student, "", ()), of) == ""


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("rule", "late", "penalty"),
    [
        ("none", DAY, 0),
        ("10% a day", timedelta(minutes=1), 8),
        ("10% a day", DAY, 8),
        ("10% a day", DAY + timedelta(minutes=1), 16),
        ("10% per day, at most 30%", 9 * DAY, 24),
        ("10% a day", 99 * DAY, 80),
        ("5 points a day", 2 * DAY, 10),
        ("1 point an hour, at most 20 points", DAY, 20),
        ("20%", 30 * DAY, 16),
        ("20%, after 15 minutes", timedelta(minutes=15), 0),
        ("20%, after 15 minutes", timedelta(minutes=16), 16),
        ("20%, zero after 7 days", 7 * DAY, 16),
        ("20%, zero after 7 days", 8 * DAY, 80),
        ("zero", timedelta(seconds=1), 80),
        ("zero, after 2 hours", timedelta(hours=2), 0),
        ("90 points", DAY, 80),
        ("10% a day", timedelta(), 0),
    ],
)
def test_what_being_late_costs_of_eighty_points(rule: str, late: timedelta, penalty: float):
    assert LateRule.parse(rule).penalty(80.0, late) == penalty


@pytest.mark.parametrize("rule", ["", "a lot", "10% a year", "10% a day, at most 5 points", "10%, soon"])
def test_a_rule_that_is_none_is_refused(rule: str):
    with pytest.raises(UsageError, match="--late "):
        LateRule.parse(rule)


def rules(tmp_path: Path, **tables: str) -> ClassRules:
    files = {name: str(saved(tmp_path / f"{name}.csv", text)) for name, text in tables.items()}
    return ClassRules.load({"due": "2026-05-01T12:00+00:00", "late": "5 points a day"} | files)


def test_an_extension_counts_for_whoever_it_is_and_a_time_from_a_table_before_one_in_a_name(tmp_path: Path):
    of = rules(
        tmp_path,
        roster=OWN,
        extensions=f"student;until\n{ZOE};2026-05-03T12:00+00:00\njay@uni.edu;+2 days\nadele;\n",
        times="Full name,Last modified (submission)\nbob,2026-05-02T13:00Z\nJROE,2026-05-03T11:00Z\neve,-\n",
    )
    zoe = of.lateness("zmueller", handed_in="2026-05-03T12:30:00+00:00")
    assert (zoe.extended, zoe.late, zoe.words, zoe.penalty(80)) == (True, timedelta(minutes=30), "30 min", 5)
    assert of.lateness("Zo__M_ller-1", ZOE, "2026-05-03T11:00:00+00:00").penalty(80) == 0
    assert of.lateness("jroe", handed_in="2026-06-03T12:30:00+00:00").penalty(80) == 0
    bob = of.lateness("bob")
    assert (bob.words, bob.penalty(80), bob.extended) == ("1 day 1 h", 10, False)
    assert of.lateness("eve").unknown.startswith("not known when it was handed in")
    assert "says that it is late" in of.lateness("eve", handed_in=LATE).unknown
    assert of.strangers({"eve": "eve"}) == ["bob"]
    assert of.strangers({"b": "Bob"}) == []


def test_a_table_with_first_and_last_names_names_people(tmp_path: Path):
    text = "Name;Vorname;due\nM\u00fcller;Zo\u00eb;+2 days\n"
    assert rules(tmp_path, roster=OWN, extensions=text).lateness("zmueller").extended


def test_a_name_that_two_people_have_gives_neither_an_extension(tmp_path: Path):
    two = "id,name\nann1,Ann Lee\nann2,Ann Lee\n"
    with pytest.raises(
        UserError, match=r"extensions\.csv:2: several in the roster are called Ann Lee: write the id"
    ):
        rules(tmp_path, roster=two, extensions="name,due\nAnn Lee,+2 days\n")
    of = rules(tmp_path, roster=two, extensions="id,due\nann2,+2 days\n")
    assert (of.lateness("ann1").extended, of.lateness("ann2").extended) == (False, True)


def test_a_day_lasts_until_its_end():
    due = ClassRules.load({"due": "2026-05-01"}).due
    assert due is not None
    assert due == datetime(2026, 5, 1, 23, 59, 59).astimezone()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"late": "zero"}, "--late zero: add --due"),
        ({"extensions": "x.csv"}, "--extensions x.csv: add --due"),
        ({"due": "tomorrow"}, "--due tomorrow: tomorrow is no time; write it as 2026-05-01 23:59"),
    ],
)
def test_settings_that_cannot_be_used_say_what_is_missing(settings: dict[str, str], said: str):
    with pytest.raises((UsageError, UserError)) as error:
        ClassRules.load(settings)
    assert said in str(error.value)


def test_a_line_of_a_table_that_says_no_time_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"times.csv:2: soon is no time"):
        rules(tmp_path, times="id,time\nann,soon\n")
    with pytest.raises(UserError, match=r"extensions.csv: no column is called due; the columns are id, points"):
        rules(tmp_path, extensions="id,points\nann,1\n")
    with pytest.raises(UserError, match=r"times.csv:2: nobody is named"):
        rules(tmp_path, times="who,time\nann,2026-05-01 10:00\n")


@pytest.mark.parametrize("kind", ["extensions", "times"])
def test_two_lines_for_one_student_are_refused_with_both(tmp_path: Path, kind: str):
    when = "2026-05-03 10:00"
    text = f"id,due,time\nzmueller,{when},{when}\nbob,,\n{ZOE},{when},{when}\n"
    with pytest.raises(UserError, match=rf"{kind}\.csv: lines 2 and 4 are both of {ZOE}: keep one of them"):
        rules(tmp_path, roster=OWN, **{kind: text})


def test_times_that_people_and_programs_write(tmp_path: Path):
    local = datetime(2026, 5, 1, 22, 10, 5).astimezone().isoformat()
    assert time_of("lab_zmueller_attempt_2026-05-01-22-10-05_hw.zip") == local
    assert time_of("hw.zip", "ann 2026-05-01 22:10:05") == local
    assert time_of("ann_2026-05-01T22:10:05 UTC.zip") == datetime(2026, 5, 1, 22, 10, 5, tzinfo=UTC).isoformat()
    assert time_of("muellerzoe_LATE_1234_567_hw.zip") == LATE
    assert time_of("ann-2026-13-01-22-10-05", "hw.zip", "20260501") == ""
    assert stamped("2026-05-01 22:10:05.000000 UTC\n") == "2026-05-01T22:10:05+00:00"
    assert stamped("2026-05-01 22:10:05 +0200") == "2026-05-01T22:10:05+02:00"
    assert stamped("yesterday") == ""
    text = 'id,time\na,"Friday, 1 May 2026, 10:10 PM"\nb,01.05.2026 22:10\nc,2026-05-01 22:10\n'
    known = rules(tmp_path, times=text).times
    assert set(known.values()) == {datetime(2026, 5, 1, 22, 10).astimezone()}
