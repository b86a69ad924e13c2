"""The review: what a person decides from before a plan is applied."""

from applier.cli.review.print_sheet import print_sheet
from applier.cli.review.reviewed import reviewed
from applier.cli.review.sheet import Sheet, review_sheet

__all__ = ["Sheet", "print_sheet", "review_sheet", "reviewed"]
