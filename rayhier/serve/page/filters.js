// Filters over the fields that the corpus declares.

import { make } from "./elements.js";

const box = document.getElementById("filters");
const heading = box.querySelector("summary");
let readers = [];

/** Show an entry for each field, name -> type. */
export function showFields(fields) {
  const pairs = Object.entries(fields);
  box.hidden = pairs.length === 0;
  readers = pairs.map(([name, type]) => ({ name, read: entry(name, type) }));
}

/** Return the filter of the entries that are filled in. Null if there are none. */
export function filter() {
  const conditions = readers.map(({ name, read }) => [name, read()]).filter(([, condition]) => condition !== null);
  heading.textContent = conditions.length ? `Filters (${conditions.length})` : "Filters";
  return conditions.length ? Object.fromEntries(conditions) : null;
}

/** Add the entry of a field. Returns a function that reads its condition, or null. */
function entry(name, type) {
  const group = make("fieldset", {}, make("legend", { text: name }));
  box.querySelector(".fields").append(group);
  switch (type) {
    case "int": return range(group, "1");
    case "float": return range(group, "any");
    case "bool": return choice(group);
    default: return texts(group);
  }
}

function range(group, step) {
  const [least, most] = ["from", "to"].map((text) => {
    const input = make("input", { type: "number", step });
    group.append(make("label", {}, `${text} `, input));
    return input;
  });
  return () => {
    const bounds = {};
    if (least.value !== "") bounds.gte = least.valueAsNumber;
    if (most.value !== "") bounds.lte = most.valueAsNumber;
    return Object.keys(bounds).length ? bounds : null;
  };
}

function choice(group) {
  const options = [["", "any"], ["true", "yes"], ["false", "no"]];
  const select = make("select", {}, ...options.map(([value, text]) => make("option", { value, text })));
  group.append(make("label", {}, "is ", select));
  return () => (select.value === "" ? null : select.value === "true");
}

function texts(group) {
  const input = make("input", { type: "text", autocomplete: "off" });
  group.append(make("label", {}, "is one of (commas between) ", input));
  return () => {
    const values = input.value.split(",").map((text) => text.trim()).filter(Boolean);
    return values.length ? { in: values } : null;
  };
}

// A browser names a wrong number only where it can be seen.
box.addEventListener("invalid", () => { box.open = true; }, true);
document.getElementById("clear").addEventListener("click", () => {
  for (const input of box.querySelectorAll("input, select")) input.value = "";
  filter();
});
