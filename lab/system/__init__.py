"""What measurements were made on, and how to make them again: SYSTEM.md and docs/reproduce.md."""
