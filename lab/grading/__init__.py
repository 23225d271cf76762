"""Syllabus, stubs, rank groups, feedback: what grades an exercise."""
