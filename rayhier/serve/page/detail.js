// The dialog that shows a document or a node.

import { request } from "./api.js";
import { count, link, make, problem, terms } from "./elements.js";
import { marked } from "./snippets.js";

const dialog = document.getElementById("detail");
const heading = document.getElementById("detail-title");
const body = document.getElementById("detail-body");
let running = new AbortController();

/** Show a document of the index by its id, with some words marked. */
export function showDocument(id, words = new Set()) {
  if (id === "." || id === "..") { // browsers read these as folders of a path
    open(id, () => Promise.reject(new Error("A browser cannot ask for a document with this id.")));
    return;
  }
  open(id, async (signal) => {
    const stored = await request(`v1/documents/${encodeURIComponent(id)}`, { signal });
    heading.textContent = stored.title || stored.id;
    const leaves = make("span", {}, ...stored.first_leaves.flatMap((leaf) => [link(`leaf ${leaf}`, () => showLeaf(leaf)), " "]));
    const fields = Object.entries(stored.fields).map(([name, value]) => [name, value === null ? "none" : String(value)]);
    const texts = stored.passages ?? [stored.text ?? ""];
    return [
      terms([["id", make("code", { text: stored.id })], ["leaf", leaves], ...fields]),
      ...texts.map((text) => make("p", { class: "text" }, marked(text, words))),
    ];
  });
}

/** Show a leaf by its number: size, keywords and representative documents. */
export function showLeaf(leaf) {
  open(`Leaf ${leaf}`, async (signal) => {
    const { nodes: [node], described, version } = await request(`v1/nodes?leaf=${leaf}`, { signal });
    const parts = [terms([["rows", count(node.size)], ["keywords", node.keywords.join(", ") || "none"]])];
    if (node.documents.length) {
      const documents = node.documents.map((id) => make("li", {}, link(id, () => showDocument(id))));
      parts.push(make("h3", { text: "Documents that most probably lie here" }), make("ul", {}, ...documents));
    }
    if (described !== version) parts.push(make("p", { class: "note", text: `Keywords and documents are those of version ${described}.` }));
    return parts;
  });
}

/** Open the dialog; `load` returns its content, or throws the error that is shown. */
async function open(title, load) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  heading.textContent = title;
  body.replaceChildren(make("p", { text: "Loading…" }));
  if (!dialog.open) dialog.showModal();
  try {
    const parts = await load(signal);
    if (signal.aborted) return;
    body.replaceChildren(...parts);
  } catch (error) {
    if (!signal.aborted) body.replaceChildren(problem(error, () => open(title, load)));
  }
  dialog.scrollTop = 0;
}

dialog.addEventListener("close", () => running.abort());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
document.getElementById("close").addEventListener("click", () => dialog.close());
