"""lab report: how a class has done, from what `lab grade` has written."""

import argparse
from pathlib import Path

HELP = "how a class has done: exercises by students, and the most frequent mistakes (for instructors)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "grades", nargs="+", type=Path, metavar="DIR", help="what `lab grade --out` has written; shards too"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to (default: the first DIR)")
    parser.add_argument(
        "--markers",
        nargs="+",
        default=(),
        metavar="NAME",
        help="deal out the questions that wait: answers-NAME.csv for each, which counts once it is marked",
    )
    parser.add_argument(
        "--column", default="", metavar="TITLE", help="how the grades' column is called on your learning platform"
    )
    parser.add_argument("--top", type=int, default=5, metavar="N", help="mistakes to print (default: 5)")


def run(args: argparse.Namespace) -> int:
    from lab.base.errors import UsageError
    from lab.base.words import visible
    from lab.course import store
    from lab.course.final.write import course_with, write_final
    from lab.course.marking_table import deal
    from lab.course.outputs import write_report
    from lab.course.report_page import mistakes, unreadable

    folders = [folder.expanduser() for folder in args.grades]
    records = store.load_all(folders)
    out = args.out.expanduser() if args.out else folders[0]
    rules, _ = store.class_rules(folders[0], {})
    write_report(out, records, rules)
    read = sum(not unreadable(record) for record in records)
    for one in mistakes(records)[: max(0, args.top)]:
        print(f"{len(one.students):4} of {read}  {one.exercise}  {one.words}")
    print(f"{out / 'report.html'}, report.csv and mistakes.csv")
    if len(folders) == 1 and not args.out:  # answers are marked beside the grades of a whole class
        write_final(out, course_with(out), lambda line: print(visible(line)), args.column)
        for file, answers in deal(out, args.markers).items() if args.markers else ():
            print(f"{file}: {answers} answers to mark")
    elif args.column or args.markers:
        raise UsageError("--column and --markers are for what lies beside the grades: name one DIR, and no --out")
    return 0
