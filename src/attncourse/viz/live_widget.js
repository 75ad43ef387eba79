// The least of a widget's model that its script needs where there is no kernel: values, and who hears of changes.

const { script, state } = JSON.parse(document.getElementById("data").textContent);
for (const [name, value] of Object.entries(state)) {
  if (value?.base64 !== undefined) {
    state[name] = new DataView(Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0)).buffer);
  }
}
const listeners = new Map();
const model = {
  get: (name) => state[name],
  set(name, value) {
    if (state[name] === value) return;
    state[name] = value;
    for (const heard of listeners.get(`change:${name}`) ?? []) heard();
  },
  save_changes() {},
  on: (event, heard) => listeners.set(event, [...(listeners.get(event) ?? []), heard]),
  off: (event, heard) => listeners.set(event, (listeners.get(event) ?? []).filter((each) => each !== heard)),
};
const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
const widget = await import(address);
await widget.default.render({ model, el: document.getElementById("widget") });
document.documentElement.dataset.ready = "true";
