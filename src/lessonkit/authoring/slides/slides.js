// Starts the deck: what has to be measured is drawn and fitted while all slides are laid out, then reveal.js takes over.
(async () => {
  const root = document.documentElement;
  const drawn = () => !document.querySelector('script[type*="widget-view"]') || root.dataset.ready === "true";
  await MathJax.startup.promise;
  await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
  while (!drawn()) await new Promise((next) => setTimeout(next, 20));

  const cut = (box) => box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;

  /** Show what is in a box as large as it fits, between three quarters and half as large again. */
  function fit(box) {
    const inside = box.firstElementChild;
    for (let percent = 150; percent >= 70; percent -= 5) {
      inside.style.zoom = percent / 100;
      box.dataset.zoom = percent;
      if (!cut(box)) return;
    }
  }
  const boxes = (slide) => [...slide.querySelectorAll(".body, .column, .fit")];

  /** Words fill a slide that has no picture: 24 pixels high at least, 36 at most. */
  function enlarge(slide) {
    if (slide.querySelector(".picture, .live")) return;
    for (let size = 36; size >= 24; size--) {
      slide.querySelector(".body").style.fontSize = `${size}px`;
      slide.querySelectorAll(".fit").forEach(fit);
      if (!boxes(slide).some(cut)) return;
    }
  }
  document.querySelectorAll(".fit").forEach(fit);
  document.querySelectorAll(".slide:not(.opening):has(.body)").forEach(enlarge);
  root.classList.remove("loading");

  // A widget's own keys are not the deck's; those of a clicker (PageUp, PageDown) and Escape are.
  for (const widget of document.querySelectorAll(".live")) {
    widget.addEventListener("keydown", (event) => {
      if (!["PageUp", "PageDown", "Escape"].includes(event.key)) event.stopPropagation();
    });
  }
  await Reveal.initialize({
    width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t", controls: false, transition: "none",
    backgroundTransition: "none", defaultTiming: 60, pdfSeparateFragments: false, pdfMaxPagesPerSlide: 1, plugins: [RevealNotes],
  });
  Reveal.addKeyBinding({ keyCode: 68, key: "D", description: "Light or dark" }, () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  });
  root.dataset.deck = "ready";
})();
