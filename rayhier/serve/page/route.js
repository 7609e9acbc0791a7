// What a search cost, and the leaves that it visited.

import { request } from "./api.js";
import { showLeaf } from "./detail.js";
import { count, link, make, problem, terms } from "./elements.js";

const box = document.getElementById("route");
const SHOWN = 10;

/** Remove what is shown of the last search. */
export function clearRoute() {
  box.hidden = true;
  box.replaceChildren();
}

/** Show an answer's cost. The leaves follow when `showLeaves` has them. */
export function showCost(answer, index, seconds) {
  const { documents, fraction, leaves } = answer.visited;
  const pairs = [
    [`${index.unit} visited`, `${count(documents)} of ${count(index.documents)} (${percent(fraction)})`],
    ["leaves visited", leaves.length ? `${count(leaves.length)} of ${count(index.leaves)}` : `none: all ${index.unit} were compared`],
  ];
  if (answer.calls !== null) pairs.push(["read by the cross-encoder", count(answer.calls)]);
  box.replaceChildren(make("h2", { text: "This search" }), terms(pairs), make("h3", { text: "Milliseconds" }), times(answer.ms, seconds));
  box.hidden = false;
}

/** Show the leaves of a route, with the keywords of `nodes`, a map from leaf to node. */
export function showLeaves(answer, route, nodes) {
  const probability = new Map(route.leaves.map(({ leaf, log_prob }) => [leaf, Math.exp(log_prob)]));
  const leaves = answer.visited.leaves;
  if (!leaves.length) return;
  const rows = leaves.slice(0, SHOWN).map((leaf) => {
    const chance = probability.has(leaf) ? ` ${percent(probability.get(leaf))} ` : " ";
    return make("li", {}, link(`leaf ${leaf}`, () => showLeaf(leaf)), make("span", { class: "number", text: chance }),
      make("span", { class: "words", text: nodes.get(leaf)?.keywords.slice(0, 6).join(" ") ?? "" }));
  });
  box.append(make("h3", { text: "Route: leaves, in the order of visit" }), make("ol", { class: "leaves" }, ...rows));
  if (leaves.length > SHOWN) box.append(make("p", { class: "note", text: `and ${count(leaves.length - SHOWN)} more` }));
  box.append(make("p", { class: "note", text: "A share is the probability that the router gives the leaf for this query." }));
}

/** Say that the leaves could not be read. */
export function showRouteProblem(error) {
  box.append(problem(error));
}

/** Return the leaves whose keywords a search shows: those of its results, and the first that it visited. */
export function leavesOf(answer) {
  return [...new Set([...answer.results.map(({ leaf }) => leaf), ...answer.visited.leaves.slice(0, SHOWN)])];
}

/** Read leaves of the tree. Returns a map from leaf to node. */
export async function readLeaves(leaves, signal) {
  const nodes = new Map();
  for (let begin = 0; begin < leaves.length; begin += 500) {
    const part = leaves.slice(begin, begin + 500).map((leaf) => `leaf=${leaf}`).join("&");
    for (const node of (await request(`v1/nodes?${part}`, { signal })).nodes) nodes.set(node.leaf, node);
  }
  return nodes;
}

function times(ms, seconds) {
  const { total, ...steps } = ms;
  const most = Math.max(total ?? 0, 0.001);
  const rows = Object.entries(steps).map(([step, value]) => {
    const bar = make("div", { class: "measure" });
    bar.style.inlineSize = `${Math.min(100, 100 * value / most)}%`;
    return make("tr", {}, make("th", { scope: "row", text: step }), make("td", { class: "number", text: milliseconds(value) }), make("td", { class: "room" }, bar));
  });
  const last = [["total", total], ["in this browser", seconds]].filter(([, value]) => value !== undefined);
  rows.push(...last.map(([step, value]) => make("tr", {}, make("th", { scope: "row", text: step }), make("td", { class: "number", text: milliseconds(value) }), make("td"))));
  return make("table", {}, make("tbody", {}, ...rows));
}

function milliseconds(value) {
  return value < 10 ? value.toFixed(1) : count(Math.round(value));
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 2 : 1)}%`;
}
