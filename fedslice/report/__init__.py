"""The report of a run: one HTML page that needs no network. Start at `write_report`."""

from fedslice.report.page import write_report

__all__ = ["write_report"]
