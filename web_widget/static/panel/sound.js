// A short sound (data-sound), once the visitor has touched the widget: no browser lets a page make one before.

import { on, options, panel } from "./host.js";

let audio;

export function watchTouch() {
  if ("sound" in options) on(panel, "pointerdown keydown", () => (audio ??= new AudioContext()));
}

export function beep() {
  if (!audio) return;
  const tone = new OscillatorNode(audio);
  tone.connect(new GainNode(audio, { gain: 0.1 })).connect(audio.destination);
  tone.start();
  tone.stop(audio.currentTime + 0.2);
}
