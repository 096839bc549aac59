"""What is seen: pages and pictures of runs, explanations, figures and walks."""

from vitrail.report.compare import write_comparison
from vitrail.report.run import write_preview, write_report
from vitrail.report.shrink import write_shrink

__all__ = ["write_comparison", "write_preview", "write_report", "write_shrink"]
