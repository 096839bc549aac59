"""What is seen: pages and pictures of runs, explanations, figures and walks."""

from vitrail.report.run import write_preview, write_report

__all__ = ["write_preview", "write_report"]
