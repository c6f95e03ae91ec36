// What the launcher hands on, and how elements are made.

export const host = document.currentScript.vuelvo;
export const { base, config, options, root } = host;
export const [launcher, note, panel] = root.children;
export const isFull = "full" in options;
export const isFramed = isFull && location.hash === "#framed";
export const isFixed = isFull && !isFramed;

export const say = (name, detail) => host.say(name, detail);

export let texts; // in the visitor's language
export const setTexts = (given) => (texts = given);

export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

export function makeButton(className, ...children) {
  const button = make("button", className, ...children);
  button.type = "button";
  return button;
}

export function on(target, names, handle) {
  for (const name of names.split(" ")) target?.addEventListener(name, handle);
}

export function addStyle(style) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
}
