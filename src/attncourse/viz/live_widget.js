// Draws the course's widgets (live_widget.py) where there is no kernel: in the web book, and on a page of their own. Each
// is drawn by its own script, from what the page keeps of it. Jupyter's loader could draw any widget, and is 3.7 MB of
// script to be read before one moves.
(() => {
  const { state: kept } = JSON.parse(
    document.querySelector('script[type="application/vnd.jupyter.widget-state+json"]').textContent,
  );
  const scripts = new Map();

  /** The least of a widget's model that its script needs: values, and who hears of changes. */
  function newModel({ state, buffers = [] }) {
    const values = { ...state };
    for (const { path, data } of buffers) {
      values[path[0]] = new DataView(Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)).buffer);
    }
    const listeners = new Map();
    return {
      get: (name) => values[name],
      set(name, value) {
        if (values[name] === value) return;
        values[name] = value;
        for (const heard of listeners.get(`change:${name}`) ?? []) heard();
      },
      save_changes() {},
      on: (event, heard) => listeners.set(event, [...(listeners.get(event) ?? []), heard]),
      off: (event, heard) => listeners.set(event, (listeners.get(event) ?? []).filter((each) => each !== heard)),
    };
  }

  /** A widget's script, and its style sheet in the page's head: once, however many widgets have them. */
  function load(script, rules) {
    if (!scripts.has(script)) {
      document.head.append(Object.assign(document.createElement("style"), { textContent: rules }));
      scripts.set(script, import(URL.createObjectURL(new Blob([script], { type: "text/javascript" }))));
    }
    return scripts.get(script);
  }

  async function draw(place) {
    const model = newModel(kept[JSON.parse(place.textContent).model_id]);
    const el = Object.assign(document.createElement("div"), { className: "widget" });
    const { default: widget } = await load(model.get("_esm"), model.get("_css"));
    place.before(el);
    place.parentElement.querySelector(".still")?.remove();
    return widget.render({ model, el });
  }

  const places = document.querySelectorAll('script[type="application/vnd.jupyter.widget-view+json"]');
  Promise.all([...places].map(draw)).then(() => (document.documentElement.dataset.ready = "true"));
})();
