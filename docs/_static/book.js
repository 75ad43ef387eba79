// The theme's arrows beside the sidebar's entries have no name, and a screen reader would say nothing.
for (const arrow of document.querySelectorAll(".bd-sidebar-primary summary")) {
  arrow.setAttribute("aria-label", `Pages under ${arrow.closest("li").querySelector("a").textContent}`);
}
// A signature over several lines is no list of definitions, though Sphinx writes it as one.
for (const part of document.querySelectorAll("dt dl, dt dl > dd")) part.setAttribute("role", "presentation");
