// Lines of the map: fronts ask shards, and standbys follow leaders. They are drawn between what is on the page already, where it stands. All that
// they say is in words, too, so that those who do not see them miss nothing.
import {html, Component} from './html.js';

const rail = 6; // where the line runs that joins rows, from the left
const inset = 26; // where a line meets a shard, and how far a row's line reaches at least
const turn = 11; // where the line of standbys runs, from the left of their leader

// placed returns where elements stand within root.
function placed(root, elements) {
  const whole = root.getBoundingClientRect();
  return [...elements].map(element => {
    const box = element.getBoundingClientRect();
    return {element, left: Math.round(box.left - whole.left), top: Math.round(box.top - whole.top), bottom: Math.round(box.bottom - whole.top)};
  });
}

// state is how a line is drawn to or from an element.
const state = element => ['broken', 'partly'].find(name => element.classList.contains(name)) || '';

const up = (x, y) => `M${x - 4},${y + 7}L${x},${y}L${x + 4},${y + 7}z`;
const down = (x, y) => `M${x - 4},${y - 7}L${x},${y}L${x + 4},${y - 7}z`;

// asks returns the lines from fronts to shards: down from each front to the line below its row, and from the line above its row to each shard. Rows
// that are not the same line are joined at the left.
function asks(root) {
  const fronts = placed(root, root.querySelectorAll('.fronts > li')), shards = placed(root, root.querySelectorAll('.shards > li'));
  if (fronts.length === 0) return [];
  const half = (Math.min(...shards.map(s => s.top)) - Math.max(...fronts.map(f => f.bottom))) / 2;
  const out = [], rows = new Map();
  const reach = (y, x) => rows.set(y, [...(rows.get(y) || []), x]);
  for (const f of fronts) {
    const x = f.left + inset, y = f.bottom + half;
    reach(y, x);
    out.push({kind: 'asks', state: state(f.element), d: `M${x},${f.bottom}V${y}`});
  }
  for (const s of shards) {
    const x = s.left + inset, y = s.top - half;
    reach(y, x);
    out.push({kind: 'asks', state: state(s.element), d: `M${x},${y}V${s.top}`, head: down(x, s.top)});
  }
  const ys = [...rows.keys()].sort((a, b) => a - b);
  const joined = ys.length > 1;
  for (const y of ys) {
    const xs = joined ? [rail, ...rows.get(y)] : rows.get(y);
    out.push({kind: 'asks', state: '', d: `M${Math.min(...xs)},${y}H${Math.max(...xs)}`});
  }
  if (joined) out.push({kind: 'asks', state: '', d: `M${rail},${ys[0]}V${ys.at(-1)}`});
  return out;
}

// follows returns the lines from standbys up to their leaders.
function follows(root) {
  return [...root.querySelectorAll('.shards > li')].flatMap(shard => {
    const [leader] = placed(root, shard.querySelectorAll('.leader'));
    if (!leader) return [];
    const x = leader.left + turn;
    return placed(root, shard.querySelectorAll('.standbys > .follows, .standbys > .broken')).map(s => ({
      kind: 'follows', state: state(s.element), d: `M${s.left},${s.top + 13}H${x}V${leader.bottom}`, head: state(s.element) ? '' : up(x, leader.bottom),
    }));
  });
}

export class Lines extends Component {
  constructor() {
    super();
    this.state = {lines: []};
    this.seen = new ResizeObserver(() => this.measure());
  }

  componentDidMount() {
    this.seen.observe(this.svg.parentElement);
    this.measure();
  }

  componentDidUpdate() {
    this.measure();
  }

  componentWillUnmount() {
    this.seen.disconnect();
  }

  measure() {
    const root = this.svg.parentElement;
    const lines = [...asks(root), ...follows(root)].sort((a, b) => (a.state === '') - (b.state === '')); // what works lies above what does not
    const now = JSON.stringify(lines);
    if (now === this.drawn) return;
    this.drawn = now;
    this.setState({lines});
  }

  render(_, {lines}) {
    return html`
      <svg class="lines" aria-hidden="true" ref=${s => { this.svg = s || this.svg; }}>
        ${lines.map(l => html`<g key=${`${l.kind} ${l.d}`} class=${`${l.kind} ${l.state}`}><path d=${l.d} />${l.head && html`<path class="head" d=${l.head} />`}</g>`)}
      </svg>`;
  }
}
