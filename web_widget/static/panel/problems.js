// What keeps the visitor from talking, said in words.

import { say, texts } from "./host.js";
import { setText, trouble } from "./view.js";

const TYPES = { 403: "origin-refused", 404: "closed", 429: "too-many" };

export function explain({ status, type }) {
  if (!status) return;
  const known = texts[type] ? type : TYPES[status];
  setText(trouble, texts[known] ?? texts.failed);
  say("refused", { type: type ?? "about:blank" });
}
