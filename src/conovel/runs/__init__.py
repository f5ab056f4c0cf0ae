"""The steps of a run: one site, a network, repeats, ledgers, kept detectors, results."""
