"""What goes back: feedback pages to students, points to other systems."""
