"""The bar below the title of a lecture: its notebook, its assignment, its slides, and where to report an error."""

from urllib.parse import quote, urlencode

from lessonkit.course import Course, Lesson

SLIDES = "slides"  # the folder in the site: slides/04/index.html
REPORT = "docs/tested.md"  # says how to report an error where the course names no repository


def markdown(course: Course, lesson: Lesson, title: str, slides: bool, guide: bool) -> str:
    """The bar as a paragraph of Markdown; its links are as from the lecture's notebook.

    `slides` and `guide` say whether the site has the lesson's slides, and the page on reporting an error.
    """
    links = [
        f"[Download notebook](path:../notebooks/{lesson.number}_{lesson.name}.ipynb)",
        f"[Assignment {lesson.number}](../{lesson.assignment_notebook})",
    ]
    if slides:
        links.append(f'<a href="../{SLIDES}/{lesson.number}/index.html">Slides</a>')
    if report := report_address(course, title, lesson.lecture_notebook):
        links.append(f"[Report an error]({report})")
    elif guide:
        links.append(f"[Report an error](../{REPORT}#report-an-error)")
    return "{.lesson-bar}\n" + "\n".join(links)


def report_address(course: Course, title: str, page: str) -> str | None:
    """Where an issue about a page is opened, its title filled in; None where the course names no repository."""
    if course.repository is None:
        return None
    body = f"Page: {page}\nWhat is wrong, and in which section:\n"
    return f"{course.repository.rstrip('/')}/issues/new?" + urlencode(
        {"title": f"Error in {title}", "body": body}, quote_via=quote
    )
