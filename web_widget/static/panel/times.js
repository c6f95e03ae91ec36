// Times in the visitor's language and time zone.

import { root } from "./host.js";

export const TIME = { hour: "numeric", minute: "2-digit" };
const DATE = { day: "numeric", month: "long" };
const WEEKDAY = { weekday: "long" };

export function formatTime(at, how) {
  const { lang } = root.host;
  return new Intl.DateTimeFormat(navigator.languages.find((tag) => tag.startsWith(lang)) ?? lang, how).format(at);
}

// By the calendar, not by hours.
export function daysAgo(at) {
  return Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000);
}

// "Tuesday" within a week, later "3 March", and much later with its year.
export function nameDay(at) {
  const days = daysAgo(at);
  if (days > 0 && days < 7) return formatTime(at, WEEKDAY);
  return formatTime(at, { ...DATE, ...(days > 300 && { year: "numeric" }) });
}

export function nameMoment(at) {
  return formatTime(at, { ...WEEKDAY, ...DATE, ...TIME });
}
