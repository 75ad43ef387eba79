// A JupyterLab extension in the form that JupyterLab loads, written by hand: it needs none of JupyterLab's modules, and
// so no bundler. nbgrader's Validate button stands above every notebook; above one without checks it is hidden.
// (It is in no folder called static: of such a one, browsers would keep the old file.)
(() => {
  const NOTHING = "lessonkit-nothing-to-validate";
  const plugin = {
    id: "@lessonkit/learner:notebooks",
    autoStart: true,
    activate: (app) => {
      const style = document.createElement("style");
      style.textContent = `.${NOTHING} [data-jp-item-name="runAll"] { display: none; }`;  // nbgrader's name for it
      document.head.append(style);
      app.docRegistry.addWidgetExtension("Notebook", {
        createNew: (panel, context) => {
          panel.addClass(NOTHING);
          context.ready.then(() => {
            const graded = Array.from(context.model.cells).some((cell) => cell.getMetadata("nbgrader")?.grade);
            panel.toggleClass(NOTHING, !graded);
          });
        },
      });
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["@lessonkit/learner"] = { init: () => {}, get: async () => () => plugin };
})();
