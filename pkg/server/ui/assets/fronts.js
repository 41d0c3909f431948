// Which front asks which shard. A front asks each replica about once a second whether it is ready.
import {html} from './html.js';
import {count, lasting, listed, secondsBetween} from './words.js';

const silent = 10; // seconds after which a front counts as one that does not ask any more

// since returns for how many seconds no replica of a shard has been asked by a front: Infinity if none ever was, and undefined if none tells.
function since(shard, front) {
  const telling = (shard.replicas || []).filter(r => r.fronts);
  if (shard.fault || telling.length === 0) return undefined;
  return Math.min(...telling.map(r => secondsBetween(r.fronts.find(f => f.name === front.name)?.heard, r.observed) ?? Infinity));
}

// Fronts has them all, each with the shards that it asks.
export function Fronts({installation}) {
  const {fronts, shards} = installation;
  return html`
    <section class="card" aria-labelledby="fronts">
      <h2 id="fronts">Fronts <span class="dim">${count(fronts.length, 'front')}</span></h2>
      <ul class="fronts">${fronts.map(f => html`<${Front} key=${f.name} front=${f} shards=${shards} />`)}</ul>
    </section>`;
}

function Front({front, shards}) {
  const told = shards.map(s => ({shard: s.name, seconds: since(s, front)})).filter(s => s.seconds !== undefined);
  const asked = told.filter(s => s.seconds <= silent).map(s => s.shard);
  const missing = told.filter(s => s.seconds > silent).map(s => s.shard);
  return html`
    <li class=${missing.length === 0 ? 'well' : asked.length > 0 ? 'warn' : 'bad'}>
      <span class="dot" aria-hidden="true"></span> <span>front <strong>${front.name}</strong></span>
      ${asked.length > 0 && html` <span>asks ${asked.length === shards.length && asked.length > 2 ? `all ${asked.length} shards` : listed(asked)}</span>`}
      ${missing.length > 0 && html` <span class="fault">${asked.length > 0 && 'but '}does not ask ${listed(missing)}</span>`}
    </li>`;
}

// AskedBy says which fronts ask a shard, and which do not.
export function AskedBy({shard, fronts}) {
  const told = fronts.map(front => ({front: front.name, seconds: since(shard, front)}));
  const asking = told.filter(t => t.seconds <= silent).map(t => t.front);
  return html`
    ${asking.length > 0 && html`<p class="dim">asked by ${asking.length > 4 ? `${asking.length} fronts` : `front${asking.length > 1 ? 's' : ''} ${listed(asking)}`}</p>`}
    ${told.filter(t => t.seconds > silent).map(t => html`<p class="fault" key=${t.front}>front ${t.front} ${t.seconds === Infinity ? 'has never asked it' : `has not asked it for ${lasting(t.seconds)}`}</p>`)}`;
}
