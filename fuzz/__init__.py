"""Coverage-guided fuzzing of what peers may send; see README.md in this folder."""
