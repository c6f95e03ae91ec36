// A small part of Markdown, made of text nodes only: paragraphs, lists, bold, italics, code, links. Whatever comes is read
// once from front to back: no mark is looked for across another of its kind, and none further than its limit.

import { make } from "./host.js";

export function render(text) {
  const parts = document.createDocumentFragment();
  let block = null;
  let code = null;
  for (const line of text.replace(/\s+$/, "").split("\n")) {
    if (code) {
      if (/^```[ \t]*$/.test(line)) code = null;
      else code.append(code.firstChild ? "\n" : "", line);
      continue;
    }
    if (line.startsWith("```")) {
      code = make("code");
      parts.append(make("pre", "", code));
      block = null;
      continue;
    }
    if (!line.trim()) {
      block = null;
      continue;
    }
    const [, bullet, number, entry] = /^\s*(?:([-*•])|(\d{1,9})[.)])\s+([^]*)$/.exec(line) ?? [];
    const kind = bullet ? "UL" : number ? "OL" : "P";
    if (block?.tagName !== kind) {
      block = make(kind);
      if (number) block.start = number;
      parts.append(block);
    } else if (kind === "P") {
      block.append(make("br"));
    }
    if (kind === "P") block.append(...renderLine(line.replace(/^#{1,6}\s+/, "")));
    else block.append(make("li", "", ...renderLine(entry)));
  }
  return parts;
}

const MARKS = new RegExp(
  [
    "`([^`]{1,1000})`",
    "\\*\\*([^\\s*](?:(?:(?!\\*\\*).){0,1000}[^\\s*])?)\\*\\*",
    "(?<![\\w*])([*_])([^\\s*_](?:[^*_]{0,1000}[^\\s*_])?)\\3(?![\\w*])",
    "\\[([^[\\]]{1,500})\\]\\(([^\\s()]{1,2000}(?:\\([^\\s()]{0,500}\\)[^\\s()]{0,500})?)\\)",
    "(https?://[^\\s<>\"]{1,2000})",
  ].join("|"),
  "gu",
);

function renderLine(text) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(MARKS)) {
    const [all, code, bold, , italic, label, target, url] = found;
    nodes.push(text.slice(at, found.index));
    at = found.index + all.length;
    if (code) nodes.push(make("code", "", code));
    else if (bold) nodes.push(make("strong", "", ...renderLine(bold)));
    else if (italic) nodes.push(make("em", "", ...renderLine(italic)));
    else if (label) nodes.push(...renderLink(label, target, all));
    else {
      // What ends the sentence does not belong to the address.
      const address = url.replace(url.includes("(") ? /[.,;:!?'*_]+$/ : /[.,;:!?'*_)\]]+$/, "");
      nodes.push(...renderLink(address, address, address), url.slice(address.length));
    }
  }
  nodes.push(text.slice(at));
  return nodes;
}

// Where a link leads can always be read; what cannot be trusted stays text.
function renderLink(label, target, source) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return [source];
  }
  if (!/^(https?|mailto):$/.test(url.protocol) || url.username || url.password) return [source];
  // Marks that turn the direction of writing could make one address look like another.
  const words = label.replace(/\p{Bidi_C}/gu, "");
  const link = make("a", "", make("bdi", "", words));
  link.href = url.href;
  link.target = "_blank";
  link.rel = "noreferrer nofollow";
  const place = url.host || url.pathname;
  const isTold = [place, target].includes(words) && target.toLowerCase().includes(place);
  return isTold ? [link] : [link, " (", make("bdi", "", place), ")"];
}
