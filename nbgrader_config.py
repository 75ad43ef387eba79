"""nbgrader's settings for this course: its commands and the formgrader read this file when they start in this folder.

What the kit asks of nbgrader is in src/lessonkit/grading/settings.py; what is set here, below the call, wins.
The exchange's place is the instructor's to choose: in a config of their own (`c.Exchange.root`), or in the environment
variable ATTNCOURSE_EXCHANGE.
"""

import os

from lessonkit.grading.settings import use_course

c = get_config()  # noqa: F821

use_course(c, "attncourse_lessons")
c.CourseDirectory.course_id = "attncourse"
if os.environ.get("ATTNCOURSE_EXCHANGE"):
    c.Exchange.root = os.environ["ATTNCOURSE_EXCHANGE"]
