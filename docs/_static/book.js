// The theme's arrows beside the sidebar's entries have no name, and a screen reader would say nothing.
for (const arrow of document.querySelectorAll(".bd-sidebar-primary summary")) {
  arrow.setAttribute("aria-label", `Pages under ${arrow.closest("li").querySelector("a").textContent}`);
}
// A signature over several lines is no list of definitions, though Sphinx writes it as one.
for (const part of document.querySelectorAll("dt dl, dt dl > dd")) part.setAttribute("role", "presentation");
// Nobody can unfold an answer on paper.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll(".bd-article details:not([open])")];
  for (const answer of folded) answer.open = true;
});
addEventListener("afterprint", () => {
  for (const answer of folded) answer.open = false;
});
