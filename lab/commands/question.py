"""lab question: one of the small questions of the notebooks, asked and judged in a terminal."""

import argparse

HELP = "a small question with numbers of your own, and what your answer means; none: all of them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the question, such as ddp-sends")
    parser.add_argument(
        "answer", nargs="?", metavar="ANSWER", help="a number, a letter, or letters in order (b a c)"
    )
    parser.add_argument("--code", metavar="DIR", help="the folder of your exercises (default: found from here)")


def run(args: argparse.Namespace) -> int:
    from lab.questions.asking import all_questions, answered, ask, judge
    from lab.questions.question import PLACEHOLDER
    from lab.questions.words import list_lines, question_lines, verdict
    from lab.syllabus.paths import find_code, is_labs_own, student_folder

    code = find_code(args.code)
    folder = None if is_labs_own(code) else student_folder(code)
    if args.name is None:
        print("\n".join(list_lines([(one.section, one.name) for one in all_questions()], answered(folder))))
        return 0
    if args.answer is None:
        asked = ask(folder, args.name)
        print("\n".join(question_lines(asked)))
        print(f'Answer: lab question {args.name} "{PLACEHOLDER}", with your own answer for "{PLACEHOLDER}"')
        return 0
    judged = judge(folder, args.name, args.answer)
    print(verdict(judged))
    return 0 if judged.right else 1
