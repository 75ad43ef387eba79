"""The course on paper: a book of all lessons, and a handout for each lecture, as PDF."""
