"""Pure functions on integers: levels, ranks, the step-up, its resolution, the null proportion."""
