"""What speaks against a result: mistakes in the rows, drift, an implausible outcome, few rows.

Nothing here changes a decision. Each module looks at one thing and gives findings
(:class:`conovel.spec.findings.Finding`).
"""
