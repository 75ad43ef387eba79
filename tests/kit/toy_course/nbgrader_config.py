from lessonkit.grading.settings import use_course

c = get_config()  # noqa: F821
use_course(c, "shapes_lessons")
c.CourseDirectory.course_id = "shapes"
