// What is served: the index, its model, how it is searched, and whether all of it answers.

import { count, make, terms } from "./elements.js";

const box = document.getElementById("facts");

/** Show the description of an index, a group of facts after another. */
export async function showServed(index) {
  const health = make("span", { text: "…" });
  const groups = {
    Index: [
      ["name", index.name],
      ["version", String(index.version)],
      ["documents", count(index.documents)],
      ["leaves", count(index.leaves)],
      ["leaves of a document, at most", String(index.leaves_per_document)],
      ["shards", count(index.shards)],
      ["index", make("code", { text: index.index })],
    ],
    Model: [
      ["model", make("code", { text: index.model })],
      ["router", index.router],
      ["numbers of a vector", count(index.dimension)],
      ["similarity", index.similarity],
      ["precision", index.precision],
    ],
    Search: [
      ["modes", index.modes.map((name) => (name === index.mode ? `${name} (default)` : name)).join(", ")],
      ...(index.weight === null ? [] : [["weight of BM25", String(index.weight)]]),
      ["compares", { leaves: "documents of the leaves that a query visits", level: "all documents, by a level of the tree", codes: "all documents, by codes" }[index.how]],
      ["leaves visited, at most", count(index.beam)],
      ["promised recall", index.recall === null ? "none" : index.recall.toFixed(3)],
      ["re-ranking", index.rerank],
    ],
    Server: [
      ["shard groups", index.groups.join(", ")],
      ["answers", health],
    ],
  };
  box.replaceChildren(...Object.entries(groups).map(([title, pairs]) => make("section", { class: "group" }, make("h3", { text: title }), terms(pairs))));
  health.textContent = await state();
}

async function state() {
  try {
    const { ready, lost } = await (await fetch("readyz")).json();
    return ready ? "all parts" : `not all: ${lost.join(", ")} did not answer`;
  } catch {
    return "the server did not answer";
  }
}
