// The tree of the index: nodes by their keywords, opened step by step.

import { request } from "./api.js";
import { showLeaf } from "./detail.js";
import { count, make, problem } from "./elements.js";

const box = document.getElementById("branches");
const KEYWORDS = 8, LIMIT = 1000;

/** Show the nodes below the root, unless they are shown. */
export function showTree() {
  if (!box.querySelector("ul")) void unfold(box, "0:0");
}

/** Add the children of a node to an element. */
async function unfold(place, name) {
  place.querySelector(":scope > .problem")?.remove();
  try {
    const answer = await request(`v1/nodes?below=${name}&limit=${LIMIT}`);
    if (place.querySelector(":scope > ul")) return;
    const list = make("ul", { class: "tree" }, ...answer.nodes.map(branch));
    const rest = answer.total - answer.nodes.length;
    if (rest) list.append(make("li", { class: "note", text: `and ${count(rest)} smaller ones` }));
    place.append(list);
  } catch (error) {
    if (!place.querySelector(":scope > .problem")) place.append(problem(error, () => unfold(place, name)));
  }
}

function branch(node) {
  const item = make("li");
  const button = make("button", { type: "button", class: "branch" },
    make("span", { class: "fold", "aria-hidden": "true", text: node.leaf === null ? "▸" : "" }),
    make("span", { class: "number", text: count(node.size) }),
    make("span", { class: "place", text: node.leaf === null ? node.name : `leaf ${node.leaf}` }),
    make("span", { class: "words", text: node.keywords.slice(0, KEYWORDS).join(" ") || "no keywords" }));
  if (node.leaf === null) {
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => toggle(item, button, node));
  } else {
    button.setAttribute("aria-haspopup", "dialog");
    button.addEventListener("click", () => showLeaf(node.leaf));
  }
  item.append(button);
  return item;
}

function toggle(item, button, node) {
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", open);
  button.querySelector(".fold").textContent = open ? "▾" : "▸";
  const list = item.querySelector(":scope > ul");
  if (list) list.hidden = !open;
  else if (open) void unfold(item, node.name);
}
