// Numbers, names and sentences as the page writes them.

export const formatCount = (count) => count.toLocaleString("en");

export const plural = (count, one, many = `${one}s`) =>
  `${formatCount(count)} ${count === 1 ? one : many}`;

export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const asSentence = (text) => capitalized(text) + (/[.!?…]$/.test(text) ? "" : ".");

const isExtreme = (probability) =>
  (probability > 0 && probability < 0.01) || (probability > 0.99 && probability < 1);

// A probability in percent as it is compared: whole percents, but above 99 and below 1 as it is.
export const inPercent = (probability) =>
  isExtreme(probability) ? 100 * probability : Math.round(100 * probability);

// A probability in percent as it is written, with no-break spaces.
export function formatPercent(probability) {
  if (!isExtreme(probability)) return `${inPercent(probability)}\u00a0%`;
  return probability < 0.5 ? "<\u00a01\u00a0%" : ">\u00a099\u00a0%";
}

export const roundedScore = (value) => Number(value.toFixed(2));

export const formatScore = (value) => `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(2)}`;

export const formatSigned = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

export function formatDuration(seconds) {
  if (seconds < 90) return plural(Math.max(1, Math.round(seconds)), "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  return plural(Math.round(seconds / 3600), "hour");
}

// Heads per second or, if slow, per minute.
export function formatPace(perSecond) {
  if (perSecond >= 1) return `${plural(Math.round(perSecond), "head")} a second`;
  return `${plural(Math.max(1, Math.round(60 * perSecond)), "head")} a minute`;
}

export const withSpaces = (name) => name.replaceAll("_", " ");

// A name that fits beside others on a line.
export const shortened = (name, length = 40) =>
  name.length > length ? `${name.slice(0, length - 1).trimEnd()}…` : name;

// The name of an end of a pair, "head" or "tail", with its id if another entity of the graph has the same name.
export const endText = (pair, end) =>
  pair[`${end}_name_shared`] ? `${pair[`${end}_name`]} (${pair[end]})` : pair[`${end}_name`];

export const pairText = (pair) => `${endText(pair, "head")} → ${endText(pair, "tail")}`;

// The last words of a relation that is written as a path or an address; both of two joined paths.
export function shortRelation(relation) {
  if (!/^(\/|https?:\/\/)/.test(relation)) return relation;
  const paths = relation.startsWith("/") ? relation.split("./") : [relation];
  const ends = paths.map((path) =>
    path
      .replace(/[/#]+$/, "")
      .split(/[/#]/)
      .at(-1),
  );
  return ends.join(" / ") || relation;
}

export function stepText({ relation, words, inverse }) {
  const name = shortRelation(words || relation);
  return inverse ? `←${name}—` : `—${name}→`;
}
