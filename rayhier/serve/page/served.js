// What is served: the index, its model, how it is searched, and whether all of it answers.

import { request } from "./api.js";
import { count, make, problem, terms } from "./elements.js";

const box = document.getElementById("facts");

/** Show the description of the index as it is served now, a group of facts after another. */
export async function showServed() {
  let index, versions;
  try {
    [index, { versions }] = await Promise.all([request("v1/index"), request("v1/versions?limit=10")]);
  } catch (error) {
    box.replaceChildren(problem(error, showServed));
    return;
  }
  const health = make("span", { text: "…" });
  const groups = {
    Index: [
      ["name", index.name],
      ["version", String(index.version)],
      ["last change of the log", String(index.log)],
      [index.unit, count(index.documents)],
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
      ...(index.refused === null ? [] : [["a newer one is not served", index.refused]]),
    ],
    Search: [
      ["modes", index.modes.map((name) => (name === index.mode ? `${name} (default)` : name)).join(", ")],
      ...(index.weight === null ? [] : [["weight of BM25", String(index.weight)]]),
      ["compares", { leaves: "documents of the leaves that a query visits", level: "all documents, by a level of the tree" }[index.how]],
      ["leaves visited, at most", count(index.beam)],
      ["recall on dev", index.recall === null ? "none" : index.recall.toFixed(3)],
      ["re-ranking", index.rerank],
    ],
    Drift: [
      ["imbalance of leaves", index.drift.imbalance.toFixed(2)],
      ["rows of removed documents", share(index.drift.void)],
      ["rows added since the build", share(index.drift.added)],
      ["log-probability in the best leaf", index.drift.log_prob.toFixed(2)],
      ...(index.drift.added_log_prob === null ? [] : [["of documents added since", index.drift.added_log_prob.toFixed(2)]]),
      ["recall as served", index.recall_served === null ? "not measured yet" : recall(index.recall_served)],
      ["advice", index.drift.advice.join("; ") || "all is well"],
    ],
    Versions: versions.map((each) => [
      `${each.version}${each.served ? ", served" : ""}`,
      `${each.change}${each.restored === null ? "" : ` to ${each.restored}`}, ${count(each.documents)} ${index.unit}, ${new Date(1000 * each.at).toLocaleString()}`,
    ]),
    Server: [
      ["shard groups", index.groups.join(", ")],
      ["answers", health],
    ],
  };
  box.replaceChildren(...Object.entries(groups).map(([title, pairs]) => make("section", { class: "group" }, make("h3", { text: title }), terms(pairs))));
  health.textContent = await state();
}

function share(value) {
  return `${(100 * value).toFixed(1)}%`;
}

function recall({ mean, low, high, queries }) {
  return `${share(mean)} (${share(low)} to ${share(high)}, ${count(queries)} queries also searched exactly)`;
}

async function state() {
  try {
    const { ready, lost } = await (await fetch("readyz")).json();
    return ready ? "all parts" : `not all: ${lost.join(", ")} did not answer`;
  } catch {
    return "the server did not answer";
  }
}
