// Who led when. Terms last for days and gaps for milliseconds, so lengths are logarithmic: ten times as long is as much longer, wherever it
// stands. What somebody points at, or reaches by the keyboard, is told below with the phases of its takeover to scale.
import {html, Component} from './html.js';
import {at, lasting, secondsBetween} from './words.js';

const lane = 26, labels = 130, gap = 'gap';

// width of so many seconds, in pixels.
const width = seconds => 6 + 15 * Math.log10(1 + Math.max(0, seconds) * 1000);

export function Timeline({installation, terms}) {
  return html`
    <section aria-labelledby="timeline">
      <h2 id="timeline">Who led when</h2>
      ${installation.shards.filter(s => !s.fault).map(s => html`<${Shard} key=${s.name} name=${s.name} observed=${installation.observed} history=${terms[s.name]} latest=${s.terms} />`)}
    </section>`;
}

// merged returns what is remembered of a shard's terms with the latest of them, the latest first. The latest come with each answer, so they know more.
function merged(remembered = [], latest = []) {
  const known = new Set(latest.map(t => `${t.epoch} ${t.holder}`));
  return [...latest, ...remembered.filter(t => !known.has(`${t.epoch} ${t.holder}`))];
}

// pieces returns terms and gaps, the oldest first, with where they stand.
export function pieces(terms, observed) {
  const ordered = terms.filter(t => t.began).sort((a, b) => Date.parse(a.began) - Date.parse(b.began));
  const out = [];
  let x = 0;
  ordered.forEach((term, i) => {
    const next = ordered[i + 1];
    const before = term.gapSeconds ?? 0;
    if (i > 0 || before > 0) {
      const w = width(before);
      out.push({kind: gap, key: `gap-${term.epoch}-${term.began}`, term, seconds: before, x, w});
      x += w;
    }
    const ended = term.ended || (next && new Date(Date.parse(next.began) - 1000 * (next.gapSeconds ?? 0)).toISOString());
    const seconds = Math.max(0, secondsBetween(term.began, ended || observed));
    const w = width(seconds);
    out.push({kind: 'term', key: `term-${term.epoch}-${term.began}`, term, seconds, goesOn: !ended, next, x, w});
    x += w;
  });
  return {pieces: out, width: x};
}

function saying(p) {
  const t = p.term;
  if (p.kind === gap) return `Nobody led for ${lasting(p.seconds)} before epoch ${t.epoch} of ${t.replica}${t.trigger ? ` (${t.trigger})` : ''}`;
  const end = p.goesOn ? 'goes on' : t.endCause ? `ended: ${t.endCause}${t.endReason ? `, ${t.endReason}` : ''}` : p.next ? `ended: ${p.next.trigger}` : 'ended';
  return `${t.replica} led, epoch ${t.epoch}, for ${lasting(p.seconds)}, ${end}`;
}

// stepped moves to the piece before or after by the arrow keys: Tab reaches one of them only.
function stepped(e) {
  const at = e.currentTarget;
  const to = {ArrowLeft: at.previousElementSibling, ArrowRight: at.nextElementSibling, Home: at.parentElement.firstElementChild, End: at.parentElement.lastElementChild}[e.key];
  if (to === undefined) return;
  e.preventDefault();
  to?.focus();
}

class Shard extends Component {
  constructor() {
    super();
    this.state = {key: ''};
  }

  // The latest term is what people come for.
  componentDidUpdate() {
    const latest = merged(this.props.history?.terms, this.props.latest)[0]?.began;
    if (this.scroller && latest !== this.latest) {
      this.latest = latest;
      this.scroller.scrollLeft = this.scroller.scrollWidth;
    }
  }

  componentDidMount() {
    this.componentDidUpdate();
  }

  render({name, observed, history, latest}) {
    const terms = merged(history?.terms, latest);
    if (terms.length === 0 && history?.fault && !history.none) return html`<p class="fault">shard ${name}: ${history.fault}</p>`;
    if (terms.length === 0) return html`<p class="dim">shard ${name}: ${history?.none ? 'its servers keep no history.' : 'no term is remembered yet.'}</p>`;
    const all = pieces(terms, observed);
    if (all.pieces.length === 0) return html`<p class="dim">shard ${name}: no term is remembered yet.</p>`;
    const replicas = [...new Set(terms.filter(t => t.began).map(t => t.replica))].sort();
    const height = replicas.length * lane + 4;
    const shown = all.pieces.find(p => p.key === this.state.key) || all.pieces.at(-1);
    const pick = p => ({
      role: 'option', 'aria-label': saying(p), 'aria-selected': p === shown, tabIndex: p === shown ? 0 : -1, onKeyDown: stepped,
      onMouseEnter: () => this.setState({key: p.key}), onFocus: () => this.setState({key: p.key}), onClick: () => this.setState({key: p.key}),
    });
    return html`
      <figure class="history">
        <figcaption>shard ${name}: ${terms.length} ${terms.length === 1 ? 'term' : 'terms'}; lengths are logarithmic</figcaption>
        <div class="lanes">
          <svg class="names" width=${labels} height=${height} aria-hidden="true">
            ${replicas.map((r, i) => html`<text key=${r} x="0" y=${i * lane + 18}>${r.length > 17 ? `${r.slice(0, 16)}…` : r}</text>`)}
          </svg>
          <div class="scroller" ref=${d => { this.scroller = d; }}>
            <svg width=${Math.ceil(all.width) + 4} height=${height} role="listbox" aria-orientation="horizontal" aria-label=${`Terms of shard ${name}, the oldest first`}>
              ${all.pieces.map(p => {
                const y = replicas.indexOf(p.term.replica) * lane + 3;
                return p.kind === gap
                  ? html`<g key=${p.key} class=${p === shown ? 'gap shown' : 'gap'} ...${pick(p)}>
                      <rect x=${p.x} y="2" width=${p.w} height=${height - 4} /><title>${saying(p)}</title>
                      ${p.w > 44 && html`<text x=${p.x + 5} y=${height / 2 + 4}>${lasting(p.seconds)}</text>`}</g>`
                  : html`<g key=${p.key} class=${`term${p.goesOn ? ' on' : ''}${p === shown ? ' shown' : ''}`} ...${pick(p)}>
                      <rect x=${p.x} y=${y} width=${p.w} height=${lane - 6} rx="3" /><title>${saying(p)}</title>
                      ${p.w > 48 && html`<text x=${p.x + 5} y=${y + 14}>${lasting(p.seconds)}</text>`}</g>`;
              })}
            </svg>
          </div>
        </div>
        <${Told} piece=${shown} />
      </figure>`;
  }
}

const phases = [['detect', 'notice it'], ['break', 'wait for one’s turn'], ['acquire', 'acquire the lease'], ['caches', 'warm caches'], ['first_reconcile', 'first reconcile'], ['first_write', 'first write']];

// Told has the details of a term, or of the gap before it.
function Told({piece}) {
  const t = piece.term;
  const known = phases.filter(([p]) => t.phases?.[p] !== undefined);
  // The last three begin when the lease is acquired.
  const before = ['detect', 'break', 'acquire'].reduce((sum, p) => sum + (t.phases?.[p] || 0), 0);
  const whole = Math.max(before + Math.max(0, ...['caches', 'first_reconcile', 'first_write'].map(p => t.phases?.[p] || 0)), 1e-9);
  let from = 0;
  return html`
    <div class="details">
      <p><strong>${saying(piece)}.</strong></p>
      <p class="dim">Began ${at(t.began)}${t.trigger && `, because of: ${t.trigger}`}. Holder identity ${t.holder}.</p>
      ${known.length > 0 && html`
        <table class="phases">
          <caption>Its takeover, to scale: ${lasting(whole)} in all</caption>
          <tbody>
            ${known.map(([p, says]) => {
              const took = t.phases[p];
              const first = ['detect', 'break', 'acquire'].includes(p);
              const left = first ? from : before;
              if (first) from += took;
              return html`
                <tr key=${p}><th scope="row">${says}</th><td>${lasting(took)}</td>
                  <td class="bar"><svg width="100%" height="10" aria-hidden="true"><rect x=${`${100 * left / whole}%`} width=${`${Math.max(0.4, 100 * took / whole)}%`} height="10" /></svg></td></tr>`;
            })}
          </tbody>
        </table>`}
    </div>`;
}
