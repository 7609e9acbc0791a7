// The page: reads what is served, then shows one view at a time, which the address names.

import { request } from "./api.js";
import { count, problem } from "./elements.js";
import { showForm, showSearch } from "./search.js";
import { showServed } from "./served.js";
import { showTree } from "./tree.js";

const start = document.getElementById("start");
const VIEWS = ["search", "tree", "served"];
let index = null;

async function begin() {
  start.replaceChildren();
  try {
    index = await request("v1/index");
  } catch (error) {
    start.replaceChildren(problem(error, begin));
    return;
  }
  document.title = `${index.name} · rayhier`;
  document.getElementById("name").textContent = index.name;
  document.getElementById("summary").textContent =
    `version ${index.version} · model ${index.model} · ${count(index.documents)} ${index.unit} · ${count(index.leaves)} leaves`;
  showForm(index);
  showView();
}

function showView() {
  if (!index) return;
  const [wanted] = location.hash.slice(1).split("?");
  const view = VIEWS.includes(wanted) ? wanted : VIEWS[0];
  for (const name of VIEWS) {
    document.getElementById(`${name}-view`).hidden = name !== view;
    const link = document.querySelector(`nav a[href="#${name}"]`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "search") showSearch();
  if (view === "tree") showTree();
  if (view === "served") void showServed();
}

addEventListener("hashchange", showView);
void begin();
