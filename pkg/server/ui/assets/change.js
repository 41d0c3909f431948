// A change of the leader, to scale: the end of one, how the next noticed it and took the lease, and what it did first.
import {html} from './html.js';
import {gapBefore, happened, lasting} from './words.js';

export const phases = [['detect', 'notice it'], ['break', 'wait for one’s turn'], ['acquire', 'acquire the lease'], ['caches', 'warm caches'], ['first_reconcile', 'first reconcile'], ['first_write', 'first write']];
const afterwards = ['caches', 'first_reconcile', 'first_write']; // the phases that begin when the lease is acquired
const leading = 0.42; // how much of the picture is before the end of the old term, of what is after it
const far = 4; // how much later than the gap the first work may be and be shown
const most = 1.25; // how much longer the picture is than what it shows

// step returns a round distance of ticks, for a length in seconds.
export function step(length, ticks) {
  const least = length / ticks, power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(n => n * power).find(s => s >= least);
}

// moments returns when the parts of a takeover were, in seconds after the end of the term before.
export function moments(term, gap) {
  const p = term.phases || {};
  const before = phases.map(([n]) => n).filter(n => p[n] !== undefined && !afterwards.includes(n));
  let at = gap - before.reduce((sum, n) => sum + p[n], 0);
  const parts = before.map(name => {
    const from = Math.max(0, Math.min(gap, at));
    at += p[name];
    return {name, from, to: Math.max(0, Math.min(gap, at))};
  });
  const marks = afterwards.filter(n => p[n] > 0).map(name => ({name, at: gap + p[name]}));
  return {parts, marks};
}

export function Change({term, before, kind}) {
  const gap = gapBefore(term, before);
  if (gap === undefined || !before) return null;
  const {parts, marks} = moments(term, gap);
  const shown = marks.filter(m => m.at <= far * Math.max(gap, 0.005)); // there may be nothing to write for long
  const length = most * Math.max(gap, ...shown.map(m => m.at), 0.001);
  const x = seconds => 100 * (seconds + leading * length) / (length * (1 + leading));
  const every = step(length, 4);
  const ticks = Array.from({length: Math.floor(length / every) + 1}, (_, i) => i * every);
  return html`
    <svg class=${`pictured ${kind}`} width="100%" height="106" role="img" aria-label=${`To scale: ${before.replica} ${happened(before, term)}, nobody led for ${lasting(gap)}, ${term.replica} leads`}>
      <rect class="nobody" x=${`${x(0)}%`} width=${`${Math.max(0.3, x(gap) - x(0))}%`} y="0" height="82" />
      <rect class="was" x="0" width=${`${x(0)}%`} y="17" height="18" />
      ${parts.map(p => html`<rect key=${p.name} class=${p.name} x=${`${x(p.from)}%`} width=${`${Math.max(0, x(p.to) - x(p.from))}%`} y="58" height="18" />`)}
      <rect class="is" x=${`${x(gap)}%`} width=${`${100 - x(gap)}%`} y="58" height="18" />
      ${shown.map(m => html`<line key=${m.name} class="mark" x1=${`${x(m.at)}%`} x2=${`${x(m.at)}%`} y1="58" y2="76" />`)}
      <line class="edge" x1=${`${x(0)}%`} x2=${`${x(0)}%`} y1="0" y2="82" />
      <line class="edge" x1=${`${x(gap)}%`} x2=${`${x(gap)}%`} y1="0" y2="82" />
      <text x="0" y="12">${before.replica}</text>
      <text class="end" x="100%" y="53">${term.replica}</text>
      <line class="axis" x1="0" x2="100%" y1="82.5" y2="82.5" />
      ${ticks.map(t => html`<g key=${t}><line class="axis" x1=${`${x(t)}%`} x2=${`${x(t)}%`} y1="82" y2="87" /><text class="tick" x=${`${x(t)}%`} y="101">${t === 0 ? '0' : lasting(t)}</text></g>`)}
    </svg>`;
}

// Phases says the parts of a takeover in words, in the colours of its picture.
export function Phases({term}) {
  const known = phases.filter(([name]) => term.phases?.[name] !== undefined);
  return known.length > 0 && html`
    <ul class="phases" aria-label="Its takeover; the last three begin when the lease is acquired">
      ${known.map(([name, says]) => html`<li key=${name}><span class=${`swatch ${name} ${afterwards.includes(name) ? 'line' : ''}`} aria-hidden="true"></span>${says} <strong>${lasting(term.phases[name])}</strong></li>`)}
    </ul>`;
}
