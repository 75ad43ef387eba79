"""The one word that checks, which write verdicts, share with graders and builders, which read them without torch."""

# Under this type a check's output holds its verdict as data (`Verdict.as_dict`).
VERDICT = "application/vnd.lessonkit.verdict+json"
