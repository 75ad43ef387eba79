// A JupyterLab extension in the form that JupyterLab loads, written by hand: it needs none of JupyterLab's modules, and
// so no bundler. (It is in no folder called static: of such a one, browsers would keep the old file.)
(() => {
  const NOTHING = "lessonkit-nothing-to-validate";
  const ASKS = /\bcheck(_all)?\s*\(/; // what a cell calls that must know what stands in the notebook
  const STYLE = `
    /* nbgrader's Validate button, by its name, above a notebook without checks */
    .${NOTHING} [data-jp-item-name="runAll"] { display: none; }
    /* The course's pictures are drawn on white, and say what they show: on a dark page, light and dark change places and
       colours keep their hue. A picture of one's own, which has no words, stays as it is. */
    [data-jp-theme-light="false"] .jp-RenderedImage img[alt]:not([alt=""]),
    [data-jp-theme-light="false"] .jp-RenderedHTML img[alt]:not([alt=""])[src^="data:image/png"],
    [data-jp-theme-light="false"] .explorer img { filter: invert(0.93) hue-rotate(180deg); }`;

  const settings = JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}");

  /** The start page, where JupyterLab would show nothing but its launcher. */
  async function openStart(app) {
    await app.restored;
    const open = Array.from(app.shell.widgets("main"));
    if (settings.treePath || !open.every((widget) => widget.id.startsWith("launcher"))) return;
    await app.commands.execute("docmanager:open", { path: settings.lessonkitStart, factory: "Markdown Preview" });
    for (const launcher of open) launcher.dispose();
  }

  /** Each cell's id and text as they stand in the notebook, saved or not. */
  function cellsOf(model) {
    return Array.from(model.cells).map((cell) => ({ id: cell.id, cell_type: cell.type, source: cell.sharedModel.getSource() }));
  }

  /** Tell a kernel, with each cell that checks, what stands in the notebook, and save before all of it is checked. */
  function tell(kernel, context) {
    if (!kernel || kernel.lessonkit) return;
    kernel.lessonkit = true;
    const request = kernel.requestExecute.bind(kernel);
    kernel.requestExecute = (content, disposeOnDone, metadata) => {
      if (!ASKS.test(content.code)) return request(content, disposeOnDone, metadata);
      if (/\bcheck_all\s*\(/.test(content.code) && context.model.dirty) context.save();
      return request(content, disposeOnDone, { ...metadata, lessonkit: cellsOf(context.model) });
    };
  }

  /** Give a picture the words that say what it shows, which JupyterLab leaves in the notebook. */
  function sayWhatItShows(image, panel) {
    const cell = panel.content.widgets.find((each) => each.node.contains(image));
    const child = image.closest(".jp-OutputArea-child");
    if (!cell?.model.outputs || !child) return;
    const output = cell.model.outputs.get(Array.from(child.parentElement.children).indexOf(child));
    const words = output?.metadata["image/png"]?.alt;
    if (words) image.alt = words;
  }

  function watchPictures(panel) {
    const seen = new MutationObserver((records) => {
      for (const { addedNodes } of records) {
        for (const node of addedNodes) {
          if (!(node instanceof Element)) continue;
          const found = node.matches(".jp-RenderedImage > img") ? [node] : node.querySelectorAll(".jp-RenderedImage > img");
          for (const image of found) sayWhatItShows(image, panel);
        }
      }
    });
    seen.observe(panel.content.node, { childList: true, subtree: true });
    panel.disposed.connect(() => seen.disconnect());
  }

  const plugin = {
    id: "@lessonkit/learner:notebooks",
    autoStart: true,
    activate: (app) => {
      document.head.append(Object.assign(document.createElement("style"), { textContent: STYLE }));
      if (settings.lessonkitStart) openStart(app);
      app.docRegistry.addWidgetExtension("Notebook", {
        createNew: (panel, context) => {
          panel.addClass(NOTHING);
          context.ready.then(() => {
            const graded = Array.from(context.model.cells).some((cell) => cell.getMetadata("nbgrader")?.grade);
            panel.toggleClass(NOTHING, !graded);
          });
          watchPictures(panel);
          context.sessionContext.kernelChanged.connect((_, { newValue }) => tell(newValue, context));
          tell(context.sessionContext.session?.kernel, context);
        },
      });
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["@lessonkit/learner"] = { init: () => {}, get: async () => () => plugin };
})();
