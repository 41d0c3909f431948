// How times and durations are said.

const units = [['d', 86400], ['h', 3600], ['m', 60]];

// lasting says a duration in seconds by its two largest units: 1h12m, 4.1 s, 23 ms.
export function lasting(seconds) {
  if (seconds === undefined || seconds === null || !isFinite(seconds)) return '';
  if (seconds < 0.00001) return '0 ms';
  if (seconds < 0.001) return `${Math.max(0, seconds * 1000).toFixed(2)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [name, size] of units) {
    if (rest >= size && parts.length < 2) {
      parts.push(Math.floor(rest / size) + name);
      rest %= size;
    } else if (parts.length === 1) {
      break;
    }
  }
  if (parts.length === 1 && parts[0].endsWith('m') && rest > 0) parts.push(rest + 's');
  return parts.join('');
}

// secondsBetween returns the seconds from one time of the API to another, or undefined if either is missing.
export function secondsBetween(from, to) {
  if (!from || !to) return undefined;
  return (Date.parse(to) - Date.parse(from)) / 1000;
}

// ago says how long ago a time was, by the clock of who observed it.
export function ago(time, observed) {
  const s = secondsBetween(time, observed);
  return s === undefined ? '' : `${lasting(Math.max(0, s))} ago`;
}

// at says a time for people, in their own zone.
export function at(time) {
  return time ? new Date(time).toLocaleString(undefined, {dateStyle: 'short', timeStyle: 'medium'}) : '';
}

// listed says names: a, b and c.
export function listed(names) {
  return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}

// count says how many of something there are.
export function count(n, one, many = one + 's') {
  return `${n.toLocaleString()} ${n === 1 ? one : many}`;
}
