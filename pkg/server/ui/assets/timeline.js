// Who led when, on a linear axis: what is long looks long, and a gap of milliseconds is a hairline with its length beside it. What somebody picks is
// told below, with its change to scale.
import {html, Component} from './html.js';
import {Change, Phases} from './change.js';
import {divided, leaderOf} from './api.js';
import {count, exactly, gapBefore, happened, lasting, reasonOf, secondsBetween, verdict} from './words.js';

const top = 20, gap = 'gap'; // pixels of the labels above all lanes
const narrow = matchMedia('(max-width: 40rem)'); // names are above the bars then, and beside them otherwise
const windows = [['5 min', 300], ['1 h', 3600], ['1 d', 86400]];
const margin = 0.02; // how much is left free after now, of what is shown
const near = 6; // pixels between two hairlines, below which the latter is drawn as a tick only
const letter = 7.5; // pixels, at most

// merged returns what is remembered of a shard's terms with the latest of them, the latest first. The latest come with each answer, so they know more.
export function merged(remembered = [], latest = []) {
  const key = t => `${t.range || 0} ${t.epoch} ${t.holder}`;
  const known = new Set(latest.map(key));
  return [...latest, ...remembered.filter(t => !known.has(key(t)))];
}

// pieces returns terms and gaps, the oldest first, with when they began and ended in milliseconds. until is when the last was last known to go on.
export function pieces(terms, until, lease) {
  const ordered = terms.filter(t => t.began).sort((a, b) => Date.parse(a.began) - Date.parse(b.began));
  const out = [];
  ordered.forEach((term, i) => {
    const before = ordered[i - 1], next = ordered[i + 1];
    const began = Date.parse(term.began);
    const seconds = gapBefore(term, before);
    if (before || seconds > 0) out.push({kind: gap, key: `gap-${term.holder}-${term.epoch}-${term.began}`, term, before, seconds, verdict: verdict(seconds, lease), from: began - 1000 * (seconds ?? 0), to: began});
    const ended = term.ended ? Date.parse(term.ended) : next && Date.parse(next.began) - 1000 * (next.gapSeconds ?? 0);
    const to = Math.max(began, ended ?? Date.parse(until));
    out.push({kind: 'term', key: `term-${term.holder}-${term.epoch}-${term.began}`, term, before, next, seconds: (to - began) / 1000, goesOn: ended === undefined, from: began, to});
  });
  return out;
}

function saying(p) {
  const t = p.term, who = t.replica || t.holder;
  if (p.kind === gap) return `Nobody led for ${lasting(p.seconds) || 'an unknown time'} before epoch ${t.epoch} of ${who}${p.before ? `: ${p.before.replica || 'the leader before'} ${happened(p.before, t)}` : ''}`;
  if (p.goesOn) return `${who} has led for ${lasting(p.seconds)}, epoch ${t.epoch}`;
  return `${who} led for ${lasting(p.seconds)}, epoch ${t.epoch}, and ${happened(t, p.next)}${reasonOf(t) ? `: ${reasonOf(t)}` : ''}`;
}

// ticksOf returns where an axis has ticks, and what they say: whole minutes, hours or days of this browser's zone.
function ticksOf(from, to, width) {
  const steps = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 4 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400, 91 * 86400, 365 * 86400];
  const least = (to - from) / 1000 * 76 / width;
  const every = 1000 * (steps.find(s => s >= least) || steps.at(-1));
  const zone = 60000 * new Date(to).getTimezoneOffset();
  const says = every >= 86400000 ? {month: 'short', day: 'numeric'} : every < 60000 ? {hour: 'numeric', minute: '2-digit', second: '2-digit'} : {hour: 'numeric', minute: '2-digit'};
  const out = [];
  for (let t = Math.ceil((from - zone) / every) * every + zone; t <= to; t += every) {
    const midnight = every < 86400000 && new Date(t).getHours() + new Date(t).getMinutes() === 0 && to - from > 12 * 3600000;
    out.push({t, says: new Date(t).toLocaleString(undefined, midnight ? {month: 'short', day: 'numeric'} : says)});
  }
  return out;
}

export class Timeline extends Component {
  constructor() {
    super();
    this.state = {span: 0, back: 0, cursor: null, key: '', picked: 0}; // span 0: that which has a change in it; back: how far the window ends before now; key: of what is told; picked: the range
  }

  render({installation, memory}, {span, back, cursor, key, picked}) {
    const now = Date.parse(installation.observed);
    const ranges = Math.max(1, ...installation.shards.map(s => divided(s)?.ranges?.length || 1)); // of the shard that has most
    const range = Math.min(picked, ranges - 1);
    const shards = installation.shards.map(s => {
      const last = memory[s.name] || {}, terms = merged(last.terms, s.terms).filter(t => (t.range || 0) === range);
      const lease = leaderOf(s)?.election?.leaseDurationSeconds;
      return {shard: s, last, terms, all: pieces(terms, s.fault ? s.heard || last.heard || terms[0]?.began : installation.observed, lease)};
    });
    const first = Math.min(now - 60000, ...shards.filter(s => s.all.length > 0).map(s => s.all[0].from));
    const changed = Math.max(...shards.map(s => s.all.findLast(p => p.kind === gap)?.from ?? -Infinity));
    const whole = (now - first) / 1000;
    const usual = windows.find(([, seconds]) => seconds < whole && changed > now - 900 * seconds)?.[1] ?? whole;
    const shown = Math.min(span || usual, whole);
    const to = Math.max(first + 1000 * shown, now - back) + 1000 * margin * shown;
    const every = shards.flatMap(s => s.all.map(piece => ({piece, shard: s.shard, isAbove: piece.term === s.terms[0] && !s.shard.fault && !divided(s.shard)})));
    const told = every.find(e => e.piece.key === key) || every.find(e => e.piece.kind === gap && e.piece.from === changed) || every.at(-1);
    const choose = seconds => this.setState({span: seconds, back: 0});
    const chosen = seconds => shown === Math.min(seconds, whole) && (seconds <= whole || shown === whole);
    return html`
      <section class="card" aria-labelledby="timeline">
        <div class="head">
          <h2 id="timeline">Who led when</h2>
          ${ranges > 1 && html`<label>Range <select value=${range} onChange=${e => this.setState({picked: Number(e.target.value), key: ''})}>
            ${Array.from({length: ranges}, (_, k) => html`<option key=${k} value=${k}>${k}</option>`)}
          </select></label>`}
          <div class="windows" role="group" aria-label="How much of it">
            ${[...windows.filter(([, seconds]) => seconds < whole), ['all', Infinity]].map(([says, seconds]) => html`<button type="button" key=${says} aria-pressed=${chosen(seconds)} onClick=${() => choose(seconds)}>${says}</button>`)}
          </div>
        </div>
        ${shards.map((s, i) => html`<${History} key=${s.shard.name} ...${s} from=${to - 1000 * shown * (1 + margin)} to=${to} now=${now} cursor=${cursor} told=${told?.piece} tell=${p => this.setState({key: p.key})} hasAxis=${i === shards.findLastIndex(o => o.all.length > 0)}
          point=${t => this.setState({cursor: t})} pan=${p => this.setState({span: shown, back: Math.max(0, now - Math.min(now, (p.from + p.to) / 2 + 500 * shown))})} />`)}
        ${told && html`<${Told} ...${told} isOneOf=${shards.length > 1} />`}
      </section>`;
  }
}

class History extends Component {
  constructor() {
    super();
    this.state = {key: '', width: 600}; // key: of what Tab reaches
    this.resized = new ResizeObserver(() => this.measure());
  }

  measure() {
    const width = Math.floor(this.box.clientWidth);
    if (width > 0 && width !== this.state.width) this.setState({width});
  }

  componentDidMount() {
    this.componentDidUpdate();
  }

  // What the keyboard has picked gets the focus, when it is drawn.
  componentDidUpdate() {
    if (this.box && this.box !== this.watched) {
      this.resized.disconnect();
      this.resized.observe(this.watched = this.box);
      this.measure();
    }
    if (!this.reach) return;
    this.reach = false;
    this.box.querySelector('[role=option][tabindex="0"]')?.focus();
  }

  componentWillUnmount() {
    this.resized.disconnect();
  }

  // stepped moves to the piece before or after by the arrow keys: Tab reaches one of them only.
  stepped(e, piece) {
    const {all, from, to, pan} = this.props;
    const i = all.indexOf(piece);
    const next = {ArrowLeft: all[i - 1], ArrowRight: all[i + 1], Home: all[0], End: all.at(-1)}[e.key];
    if (!['ArrowLeft', 'ArrowRight', 'Home', 'End'].includes(e.key)) return;
    e.preventDefault();
    if (!next) return;
    this.reach = true;
    this.pick(next);
    if (next.to < from || next.from > to) pan(next);
  }

  pick(piece) {
    this.setState({key: piece.key});
    this.props.tell(piece);
  }

  render({shard, last, terms, all, from, to, now, cursor, told, hasAxis, point}, {key, width}) {
    if (all.length === 0) {
      const why = last.fault && !last.none ? last.fault : last.none ? 'its servers keep no history.' : shard.fault ? 'it does not answer, and nothing is remembered of it.' : 'no term is remembered yet.';
      return html`<p class=${last.fault && !last.none ? 'fault' : 'dim'}>shard ${shard.name}: ${why}</p>`;
    }
    const replicas = [...new Set(all.map(p => p.term.replica))].sort();
    const lane = narrow.matches ? 44 : 30, above = lane - 26; // pixels: of a replica's lane, and of what is above its bar
    const height = top + replicas.length * lane;
    const x = t => (t - from) / (to - from) * width;
    const picked = all.find(p => p.key === key) || all.findLast(p => p.kind === gap) || all.at(-1);
    const seen = all.filter(p => (p.to >= from && p.from <= to) || p === picked);
    const ticks = ticksOf(from, to, width);
    const led = cursor !== null && all.findLast(p => p.from <= cursor && cursor < Math.max(p.to, p.from + 1));
    const ends = all.at(-1).to;
    let labelled = Infinity;
    const labels = new Map(), brief = new Set();
    const gaps = seen.filter(p => p.kind === gap && x(p.to) >= 0 && x(p.from) <= width);
    for (const [i, p] of [...gaps.entries()].reverse()) {
      const half = lasting(p.seconds).length * letter / 2, middle = Math.min(width - half, Math.max(half, x(p.to)));
      const isDense = [gaps[i - 1], gaps[i + 1]].some(other => other && Math.abs(x(other.to) - x(p.to)) < near);
      if (isDense && p.verdict === 'well' && p !== told) brief.add(p);
      else if (middle + half < labelled) {
        labels.set(p, middle);
        labelled = middle - half - 6;
      }
    }
    const longest = Math.max(...gaps.map(p => p.seconds ?? 0));
    const pick = p => ({
      role: 'option', 'aria-label': saying(p), 'aria-selected': p === picked, 'aria-setsize': all.length, 'aria-posinset': all.indexOf(p) + 1, tabIndex: p === picked ? 0 : -1,
      onKeyDown: e => this.stepped(e, p), onFocus: () => this.pick(p), onClick: () => this.pick(p),
    });
    return html`
      <figure class="history">
        <figcaption><strong>${shard.name}</strong> <span class="dim">${count(terms.length, 'term')}${gaps.length > 1 && `; the longest of ${gaps.length.toLocaleString()} gaps in sight: ${lasting(longest)}`}</span>
          <span class="cursor" aria-hidden="true">${led && html`${exactly(cursor)} · ${led.kind === gap ? 'nobody led' : `${led.term.replica} led, epoch ${led.term.epoch}`}`}</span></figcaption>
        <div class="lanes">
          <div class="names" aria-hidden="true">${replicas.map(r => html`<span key=${r} title=${r}>${r}</span>`)}</div>
          <div class="plot" ref=${d => { this.box = d; }} onPointerMove=${e => point(from + (to - from) * (e.clientX - this.box.getBoundingClientRect().left) / width)} onPointerLeave=${() => point(null)}>
            <svg width=${width} height=${height + (hasAxis ? 22 : 2)} role="listbox" aria-orientation="horizontal" aria-label=${`Terms of shard ${shard.name}, the oldest first`}>
              <g aria-hidden="true">
                ${ticks.map(t => html`<line key=${t.t} class="grid" x1=${x(t.t)} x2=${x(t.t)} y1=${top - 2} y2=${height + (hasAxis ? 4 : 0)} />`)}
                ${hasAxis && ticks.filter(t => x(t.t) > 22 && x(t.t) < width - 22).map(t => html`<text key=${t.t} class="tick" x=${x(t.t)} y=${height + 18}>${t.says}</text>`)}
                ${shard.fault && x(ends) < width && html`<rect class="unknown" x=${Math.max(0, x(ends))} y=${top} width=${Math.max(0, x(now) - Math.max(0, x(ends)))} height=${height - top} /><text class="unknown" x=${Math.max(0, x(ends)) + 6} y=${top + 18}>${x(now) - x(ends) > 120 ? 'does not answer' : ''}</text>`}
              </g>
              ${seen.map(p => {
                const a = Math.min(width, Math.max(0, x(p.from))), b = Math.min(width, Math.max(0, x(p.to))), y = top + replicas.indexOf(p.term.replica) * lane + above;
                const w = p.kind === gap ? Math.max(b - a, 1.5) : Math.max(b - a, 1);
                return p.kind === gap
                  ? html`<g key=${p.key} class=${`gap ${p.verdict}${p === told ? ' shown' : ''}`} ...${pick(p)}>
                      ${!brief.has(p) && html`<rect class="hit" x=${a + w / 2 - 6} y="0" width="12" height=${height} />`}
                      <rect class="line" x=${b - w} y=${top - 4} width=${w} height=${brief.has(p) ? 6 : height - top + 4} /><title>${saying(p)}</title>
                      ${labels.has(p) && html`<text x=${labels.get(p)} y="12">${lasting(p.seconds)}</text>`}</g>`
                  : html`<g key=${p.key} class=${`term${p.goesOn && !shard.fault ? ' on' : ''}${p === told ? ' shown' : ''}`} ...${pick(p)}>
                      <rect x=${a} y=${y} width=${w} height="22" rx="2" /><title>${saying(p)}</title>
                      ${b - a > 60 && html`<text x=${a + 7} y=${y + 15}>${lasting(p.seconds)}</text>`}</g>`;
              })}
              ${narrow.matches && replicas.map((r, i) => html`<text key=${r} class="over" x="0" y=${top + i * lane + 13} aria-hidden="true">${r}</text>`)}
              ${cursor !== null && cursor >= from && cursor <= to && html`<line class="now" x1=${x(cursor)} x2=${x(cursor)} y1="0" y2=${height} aria-hidden="true" />`}
            </svg>
          </div>
        </div>
      </figure>`;
  }
}

// Told has the details of a term, or of the gap before it. isAbove: the page shows that change to scale already.
function Told({piece, shard, isAbove, isOneOf}) {
  const t = piece.term;
  return html`
    <div class="details">
      <p>${isOneOf && `${shard.name}: `}<strong>${saying(piece)}.</strong></p>
      <p class="dim">Epoch ${t.epoch} of ${t.replica || 'a holder that does not say which replica it is'}: began ${exactly(t.began)}${t.ended && html`, ended ${exactly(t.ended)}`}. Holder identity ${t.holder}.</p>
      ${!isAbove && html`<${Change} term=${t} before=${piece.before} kind=${piece.before ? verdict(gapBefore(t, piece.before)) : ''} /><${Phases} term=${t} />`}
    </div>`;
}
