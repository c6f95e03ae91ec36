// The answer that is being written: dots first, then its words as they come. The message itself replaces both.

import { make } from "./host.js";
import { render } from "./markdown.js";
import { keepEndInView, list, typing } from "./view.js";

const REDRAWN_AFTER = 80; // ms

const words = make("div", "words");
const item = make("li", "assistant draft", words);
let drawing;

export let draft = "";

// Shows words; "" shows dots, and false nothing.
export function showDraft(told) {
  const isNew = !draft || !told;
  draft = told || "";
  if (isNew) draw(told);
  else drawing ??= setTimeout(draw, REDRAWN_AFTER);
}

function draw(told) {
  clearTimeout(drawing);
  drawing = null;
  keepEndInView(() => {
    typing.hidden = told !== "";
    if (!draft) return item.remove();
    item.ariaHidden = true; // it is read aloud once, when it is finished
    words.dir = "auto";
    words.replaceChildren(render(draft));
    if (item !== list.lastElementChild) list.append(item);
  });
}
