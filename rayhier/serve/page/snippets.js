// Snippets of texts, in which the words of a query are marked.

import { make } from "./elements.js";

const WORD = /[\p{L}\p{N}]+/gu;
const LENGTH = 280;

const COMMON = new Set("an and are as at be by do does for from how in is it of on or that the this to was what when where which who why with".split(" "));

/** Return the words of a query that are marked, in small letters: common words and single letters if there are no others. */
export function wordsToMark(query) {
  const words = query.toLowerCase().match(WORD) ?? [];
  const longer = words.filter((word) => !/^[a-z]$/.test(word) && !COMMON.has(word));
  return new Set(longer.length ? longer : words);
}

/** Make the part of a text that has most of the words, with these marked. */
export function snippet(text, words) {
  const plain = text.replace(/\s+/gu, " ").trim();
  if (plain.length <= LENGTH) return marked(plain, words);
  const begin = beginning(plain, best(plain, words));
  const end = ending(plain, begin + LENGTH);
  const part = marked(plain.slice(begin, end), words);
  if (begin > 0) part.prepend("… ");
  if (end < plain.length) part.append(" …");
  return part;
}

/** Make a text with some words marked. */
export function marked(text, words) {
  const part = document.createDocumentFragment();
  let end = 0;
  for (const match of text.matchAll(WORD)) {
    if (!words.has(match[0].toLowerCase())) continue;
    part.append(text.slice(end, match.index), make("mark", { text: match[0] }));
    end = match.index + match[0].length;
  }
  part.append(text.slice(end));
  return part;
}

/** Return the place of the first word from which on a snippet has the most different words of the query. */
function best(text, words) {
  const places = [...text.matchAll(WORD)]
    .map((match) => ({ word: match[0].toLowerCase(), place: match.index }))
    .filter(({ word }) => words.has(word));
  const inside = new Map();
  let most = 0, begin = 0, last = 0;
  for (const { word, place } of places) {
    while (last < places.length && places[last].place < place + LENGTH) {
      inside.set(places[last].word, (inside.get(places[last].word) ?? 0) + 1);
      last += 1;
    }
    if (inside.size > most) [most, begin] = [inside.size, place];
    if (inside.get(word) === 1) inside.delete(word);
    else inside.set(word, inside.get(word) - 1);
  }
  return begin;
}

/** Move back from a place to the beginning of a word, with more words before it if the text ends soon. */
function beginning(text, place) {
  const latest = Math.max(0, Math.min(place - 40, text.length - LENGTH));
  return latest === 0 ? 0 : text.indexOf(" ", latest - 1) + 1;
}

function ending(text, place) {
  if (place >= text.length) return text.length;
  const space = text.lastIndexOf(" ", place);
  return space > place - LENGTH / 2 ? space : place;
}
