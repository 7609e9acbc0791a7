// Elements of the page. Texts become text, never markup.

/** Make an element: `text` is its text, `click` its handler, and other names are its attributes. */
export function make(kind, { text, click, ...attributes } = {}, ...children) {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  if (click) element.addEventListener("click", click);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Make a list of terms and what they are, from pairs of a term and a text or an element. */
export function terms(pairs) {
  const list = make("dl");
  for (const [term, value] of pairs) list.append(make("dt", { text: term }), make("dd", {}, value));
  return list;
}

/** Make a button that looks like a link. */
export function link(text, click, attributes = {}) {
  return make("button", { type: "button", class: "link", text, click, ...attributes });
}

/** Make the message for an error, with a button if another try may help. */
export function problem(error, again) {
  const box = make("div", { class: "problem", role: "alert" }, make("p", { text: error.message }));
  if (again && error.mayPass) box.append(make("button", { type: "button", text: "Try again", click: again }));
  return box;
}

/** Format a number with separators of thousands. */
export function count(number) {
  return number.toLocaleString("en");
}
