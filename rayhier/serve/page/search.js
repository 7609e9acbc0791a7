// The search: a form, its results, and what stands in their place where there are none.

import { request } from "./api.js";
import { showDocument, showLeaf } from "./detail.js";
import { link, make, problem } from "./elements.js";
import { filter, showFields } from "./filters.js";
import { clearRoute, leavesOf, readLeaves, showCost, showLeaves, showRouteProblem } from "./route.js";
import { marked, snippet, wordsToMark } from "./snippets.js";

const [form, box, mode, k, rerank, status, progress, problems, results] =
  ["form", "query", "mode", "k", "rerank", "status", "progress", "problem", "results"].map((id) => document.getElementById(id));
const RESULTS = 10;
let index = null;
let running = null;

/** Prepare the form for an index. */
export function showForm(description) {
  index = description;
  mode.replaceChildren(...index.modes.map((name) => make("option", { value: name, text: name })));
  mode.value = index.mode;
  k.max = index.limits.max_k;
  k.value = Math.min(RESULTS, index.limits.max_k);
  document.getElementById("rerank-label").hidden = index.rerank === "none";
  showFields(index.fields);
}

/** Put the cursor into the search box, and search for the query in the address, if it is another one. */
export function showSearch() {
  box.focus();
  const query = new URLSearchParams(location.hash.replace(/^[^?]*/, "")).get("q");
  if (!query || query === box.value.trim()) return;
  box.value = query;
  void search();
}

async function search() {
  const query = box.value.trim();
  if (!query) return;
  stop();
  const controller = running = new AbortController();
  const { signal } = controller;
  const began = performance.now();
  const end = work(signal);
  clear();
  try {
    const answer = await request("v1/search", { body: body(query), signal });
    if (signal.aborted) return;
    const words = wordsToMark(query);
    show(answer, words);
    showCost(answer, index, performance.now() - began);
    end();
    await showRoute(query, answer, signal);
  } catch (error) {
    if (signal.aborted) return;
    status.textContent = "";
    problems.replaceChildren(problem(error, search));
  } finally {
    end();
    if (running === controller) running = null;
  }
}

function body(query) {
  const where = filter();
  return {
    query,
    k: k.valueAsNumber,
    mode: mode.value,
    ...(where && { filter: where }),
    ...(index.rerank !== "none" && { rerank: rerank.checked }),
  };
}

/** Read the route of a query and the keywords of leaves. If this fails, results stay. */
async function showRoute(query, answer, signal) {
  try {
    const route = await request("v1/route", { body: { query }, signal });
    const nodes = await readLeaves(leavesOf(answer), signal).catch((error) => {
      if (signal.aborted) throw error;
      return new Map(); // leaves without their keywords
    });
    if (signal.aborted) return;
    for (const place of results.querySelectorAll("[data-leaf]")) {
      place.textContent = nodes.get(Number(place.dataset.leaf))?.keywords.slice(0, 5).join(" ") ?? "";
    }
    showLeaves(answer, route, nodes);
  } catch (error) {
    if (!signal.aborted) showRouteProblem(error);
  }
}

function show(answer, words) {
  results.replaceChildren(...answer.results.map((result) => entry(result, words)));
  status.textContent = summary(answer);
  const lost = answer.lost.filter((name) => name !== "reranker");
  if (lost.length) problems.append(make("p", { class: "problem", role: "alert", text: `Results may be missing: ${lost.join(", ")} did not answer.` }));
  if (lost.length < answer.lost.length) {
    problems.append(make("p", { class: "problem", role: "alert", text: "The cross-encoder did not answer: results are in the order of the search (reranker)." }));
  }
}

function summary(answer) {
  const number = answer.results.length;
  if (number === 0) return answer.partial ? "No results." : `No document matches this query${filter() ? " and these filters" : ""}.`;
  const fewer = !answer.partial && !answer.visited.enough ? "; no more documents match" : "";
  return `${number} ${number === 1 ? "result" : "results"}${fewer}.`;
}

function entry(result, words) {
  const title = link("", () => showDocument(result.id, words), { class: "link title", "aria-haspopup": "dialog" });
  title.append(marked(result.title || result.id, words));
  const facts = make("p", { class: "facts" },
    make("span", { class: "number", text: `score ${result.score.toFixed(4)}${result.estimated ? " (estimated)" : ""}` }),
    make("code", { text: result.id, title: "id" }),
    make("span", {}, link(`leaf ${result.leaf}`, () => showLeaf(result.leaf), { "aria-haspopup": "dialog" }), " ", make("span", { class: "words", "data-leaf": result.leaf })));
  for (const [name, value] of Object.entries(result.fields ?? {})) {
    if (value !== null) facts.append(make("span", { text: `${name}: ${value}` }));
  }
  return make("li", {}, make("h3", {}, title), make("p", { class: "snippet" }, snippet(result.text ?? "", words)), facts);
}

/** Show that the search is at work, and for how long. Returns the function that hides this. */
function work(signal) {
  let seconds = 0;
  status.textContent = "Searching…";
  progress.hidden = false;
  const timer = setInterval(() => { seconds += 1; progress.dataset.seconds = `${seconds} s`; }, 1000);
  const end = () => {
    clearInterval(timer);
    if (running?.signal === signal || !running) progress.hidden = true;
    delete progress.dataset.seconds;
  };
  signal.addEventListener("abort", end, { once: true });
  return end;
}

function clear() {
  problems.replaceChildren();
  results.replaceChildren();
  clearRoute();
}

/** End the search that is at work. Returns true if there was one. */
function stop() {
  const controller = running;
  running = null;
  controller?.abort();
  return controller !== null;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = `search?${new URLSearchParams({ q: box.value.trim() })}`;
  void search();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && stop()) {
    event.preventDefault();
    status.textContent = "The search was ended.";
  }
});
