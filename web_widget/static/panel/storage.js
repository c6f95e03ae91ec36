// What is remembered: in the browser's storage, or until the page is left where that is blocked.

import { config } from "./host.js";

let store = {};
let isStored;

try {
  isStored = localStorage.length + 1;
  store = localStorage;
} catch {
  // blocked, broken, or there is none
}

export const key = (name) => `vuelvo:${config.tenant}:${name}`;

export const recall = (name) => store[key(name)];

// Nothing forgets.
export function remember(name, value) {
  try {
    if (value) store[key(name)] = value;
    else delete store[key(name)];
  } catch {
    // It is full: what is known by now is known until the page is left.
  }
}

// Pages without TLS have no locks, and where storage is blocked no tab knows of another.
export const isShared = () => isStored && navigator.locks;
