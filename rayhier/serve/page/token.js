// The token of the server: asked for in a dialog, kept in this tab until it is closed.

const KEY = "rayhier-token";
const dialog = document.getElementById("token-dialog");
const input = document.getElementById("token");
const wrong = document.getElementById("token-wrong");

/** Return the token that this tab keeps, or an empty text. */
export function storedToken() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // a browser may refuse storage
  }
}

/** Keep a token that the server took. */
export function storeToken(token) {
  try {
    if (token) sessionStorage.setItem(KEY, token);
  } catch {
    // the token stays until the page is loaded again
  }
}

/** Ask for the token. `refused` says that the server refused the last one. Returns an empty text if the person cancels. */
export function askToken(refused) {
  say(refused ? "The server refused this token." : "");
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { resolve(dialog.returnValue); }, { once: true });
  });
}

function say(message) {
  wrong.textContent = message;
  wrong.hidden = !message;
}

document.getElementById("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = input.value.trim();
  if (/^[!-~]+$/.test(token)) dialog.close(token);
  else say("A token has letters, digits and signs, and no spaces.");
});
document.getElementById("token-cancel").addEventListener("click", () => dialog.close(""));
