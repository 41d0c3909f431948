// How times, durations and what happened are said.

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

// at says a time for people, in their own zone: with the day, unless it is the day of the other time.
export function at(time, now) {
  if (!time) return '';
  const t = new Date(time), today = now && new Date(now).toDateString() === t.toDateString();
  return today ? t.toLocaleTimeString(undefined, {timeStyle: 'medium'}) : t.toLocaleString(undefined, {dateStyle: 'medium', timeStyle: now ? 'short' : 'medium'});
}

// exactly says a time to the millisecond.
export function exactly(time) {
  const t = new Date(time);
  return `${t.toLocaleDateString(undefined, {dateStyle: 'short'})} ${t.toLocaleTimeString(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3})}`;
}

// listed says names: a, b and c.
export function listed(names) {
  return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}

// count says how many of something there are.
export function count(n, one, many = one + 's') {
  return `${n.toLocaleString()} ${n === 1 ? one : many}`;
}

// ends are what has happened to a leader, by why its term ended or why the next one began.
const ends = {
  shutdown: 'was stopped', 'step down': 'stepped down', failed: 'gave up, because a controller failed', 'renew deadline': 'could not renew its lease', deposed: 'was deposed',
  fenced: 'was deposed', death: 'died', suspicion: 'fell silent', expiry: 'let its lease run out', deletion: 'lost its Lease, which was deleted', 'step-aside': 'could not renew, and made way',
  release: 'gave the lease up', 'owner-deleted': 'was declared dead',
};

// happened says what ended a leader's term, without its name. term is the one after it, if there is one.
export const happened = (before, term) => ends[before?.endCause] || ends[term?.trigger] || `ceased to lead${before?.endCause ? ` (${before.endCause})` : ''}`;

// reasonOf returns the reason that somebody gave for it.
export const reasonOf = before => (before?.endReason || '').replace(`${before?.endCause}: `, '').replace(/^on request: /, '').replace(/^the process stops$/, '');

// gapBefore returns for how many seconds nobody led before a term, or undefined. before is the term before it.
export function gapBefore(term, before) {
  if (term.gapSeconds !== undefined || term.phases) return term.gapSeconds ?? 0;
  const seconds = secondsBetween(before?.ended, term.began); // an end that is not known is put as late as it can be
  return seconds > 0 ? seconds : undefined;
}

// verdict is how good a gap is: below 100 ms nobody notices, and below the lease's duration a detector was at work.
export const verdict = (gap, lease) => gap === undefined ? '' : gap < 0.1 ? 'well' : gap < (lease || 15) ? 'warn' : 'bad';
