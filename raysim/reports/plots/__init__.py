"""The plots of a report: what they show (accuracy, data) and how all of them look."""
