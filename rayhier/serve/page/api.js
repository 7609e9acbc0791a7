// Requests to this server's API, and its errors in plain words.

import { askToken, storedToken, storeToken } from "./token.js";

/** A request that was refused, or that no server answered: status 0. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
    this.mayPass = [0, 401, 500, 503, 504].includes(status);
  }
}

let token = storedToken();
let dialog = null;

/** Send a request, with `body` by POST. Returns the answer. ApiError if there is none, AbortError if `signal` ends the request. */
export async function request(path, { body, signal } = {}) {
  for (;;) {
    const used = token;
    const response = await send(path, used, body, signal);
    if (response.status !== 401) {
      storeToken(used);
      return read(response);
    }
    await renew(used);
    signal?.throwIfAborted();
  }
}

async function send(path, used, body, signal) {
  const headers = used ? { Authorization: `Bearer ${used}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw failure(error);
  }
}

async function read(response) {
  let answer = null;
  try {
    answer = await response.json();
  } catch (error) {
    if (response.ok) throw failure(error);
  }
  if (response.ok) return answer;
  const message = answer?.error?.message ?? response.statusText;
  throw new ApiError(response.status, inWords(response.status, message, response.headers.get("Retry-After")));
}

function failure(error) {
  if (error.name === "AbortError") return error;
  return new ApiError(0, "The server did not answer. Is it running, and is this device connected to it?");
}

/** Ask for another token than `used`, once for all requests that wait for it. ApiError if the person gives none. */
async function renew(used) {
  if (used !== token) return;
  dialog ??= askToken(Boolean(used)).finally(() => { dialog = null; });
  const text = await dialog;
  if (!text) throw new ApiError(401, "Without its token this server answers nothing.");
  token = text;
}

function inWords(status, message, seconds) {
  const pause = seconds ? `Try again in ${seconds} ${seconds === "1" ? "second" : "seconds"}.` : "Try again later.";
  switch (status) {
    case 404: return `There is no such entry in the index: ${message}`;
    case 413: return `The query is too long: ${message}`;
    case 422: return `The server cannot answer this query: ${message}`;
    case 503: return `The server cannot answer now: ${message}. ${pause}`;
    case 504: return `The answer took too long: ${message}.`;
    default: return `The server answered with status ${status}: ${message}`;
  }
}
