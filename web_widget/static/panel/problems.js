// What keeps the visitor from talking, said in words.

import { say, texts } from "./host.js";
import { setText, trouble } from "./view.js";

export function explain({ status, type }) {
  if (!status) return;
  setText(trouble, texts[type] ?? texts[status] ?? texts.failed);
  say("refused", { type });
}
