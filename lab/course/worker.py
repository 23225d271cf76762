"""A process that grades one submission after another: `python -m lab.course.worker`.

Each line on stdin is a job, {"student", "path", "deadline", "assignment"}; each line on stdout the
record. It keeps one sandbox with torch loaded for all of them. It ends with its stdin.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else writes to stdout
    from lab.course.assess import assess
    from lab.course.books import ASSIGNMENTS
    from lab.course.modules import TimedServer
    from lab.course.submissions import read_submission

    with TimedServer() as server:
        server.warm_up()
        for line in sys.stdin:
            job = json.loads(line)
            path = Path(os.fsdecode(job["path"].encode("latin-1")))
            submission = read_submission(job["student"], path, assignment=ASSIGNMENTS[job["assignment"]])
            record = assess(submission, server, job["deadline"])
            answers.write(json.dumps(record.to_json()) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
