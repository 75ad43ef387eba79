// Before anything is drawn: light or dark, and how MathJax finds formulas. Paper is white.
const asked = new URLSearchParams(location.search);
document.documentElement.dataset.theme =
  asked.get("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches && !asked.has("print-pdf") ? "dark" : "light");
window.MathJax = {
  options: { ignoreHtmlClass: "reveal", processHtmlClass: "math", enableMenu: false },
  svg: { fontCache: "local" }, // the speaker's window has no other
};
