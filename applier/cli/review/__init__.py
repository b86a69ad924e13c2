"""The review: what a person decides from before a plan is applied."""

from applier.cli.review.print_sheet import print_sheet
from applier.sheet import Row, Sheet, review_sheet, reviewed, table_rows

__all__ = ["Row", "Sheet", "print_sheet", "review_sheet", "reviewed", "table_rows"]
