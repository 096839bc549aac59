"""One page that says what a run did."""

from vitrail.report.page import write_report

__all__ = ["write_report"]
