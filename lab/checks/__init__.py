"""The checks students are graded by, one file a module. Each observes in ranks and judges in the grader."""
