"""What is left to do when a class is graded: pages to mark by, and the final table, for people and for platforms.

May import: base, course, course/people, grading.
"""
