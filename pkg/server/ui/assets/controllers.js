// What the controllers do: those that need somebody are shown, and all of a replica on demand.
import {html, Component} from './html.js';
import {divided, idOf, leaderOf} from './api.js';
import {ago, count, lasting, listed, secondsBetween} from './words.js';

const bad = new Set(['failed', 'stalled', 'late', 'restarting']);
const recently = 3600; // seconds for which a failure is told after the controller works again

const told = 8; // ranges of a controller that are named

// needs reports whether somebody should look at a controller.
const needs = (c, observed) => bad.has(c.state) || c.heldBy || (c.failed && secondsBetween(c.failed, observed) < recently);

// swept says how far the pass over all objects is, in the words of regent controllers.
const swept = c => c.sweep.running ? `${c.sweep.pending.toLocaleString()} left` : c.state === 'running' || c.sweep.returned > 0 ? 'done' : '–';

export class Controllers extends Component {
  constructor(props) {
    super();
    this.state = {of: '', open: false, arrived: ''};
  }

  // Who comes by a link to the controllers of a replica sees those.
  static getDerivedStateFromProps({arrived}, state) {
    if (!arrived.startsWith('controllers/') || arrived === state.arrived) return {arrived};
    return {arrived, of: arrived.slice('controllers/'.length), open: true};
  }

  render({installation, arrived}, {of, open}) {
    const replicas = installation.shards.flatMap(s => (s.replicas || []).filter(r => !r.fault).map(r => ({...r, key: `${r.shard}/${idOf(s, r)}`, leads: divided(s) ? r.ranges?.ranges?.some(of => of.state === 'leading') : r === leaderOf(s)})));
    const failing = replicas.flatMap(r => (r.controllers || []).filter(c => needs(c, r.observed)).map(c => ({r, c})));
    const chosen = replicas.find(r => r.key === of) || (failing.find(f => f.r.leads) || failing[0])?.r || replicas.find(r => r.leads) || replicas[0];
    const working = replicas.filter(r => r.leads).map(r => ({r, n: (r.controllers || []).filter(c => c.state === 'running').length}));
    const all = working.reduce((sum, w) => sum + w.n, 0), shards = new Set(working.map(w => w.r.shard));
    return html`
      <section class="card" aria-labelledby="controllers">
        <h2 id="controllers">Controllers</h2>
        <p class=${failing.length === 0 ? 'well' : ''}><span class="mark" aria-hidden="true">${failing.length === 0 ? '✔' : ''}</span> <strong>${count(all, 'controller')}</strong> ${all === 1 ? 'works' : 'work'}${working.length === 1 && html` on ${working[0].r.name}, which leads`}${working.length > 1 && (shards.size > 1 ? html` on the leaders of ${count(shards.size, 'shard')}` : html` on ${count(working.length, 'replica')}, which lead`)}.</p>
        ${failing.length > 0 && html`<ul class="failing">${failing.map(f => html`<${Failing} key=${`${f.r.key}/${f.c.name}`} replica=${f.r} controller=${f.c} />`)}</ul>`}
        ${chosen && html`
          <details id=${`controllers/${chosen.key}`} class=${arrived === `controllers/${chosen.key}` ? 'arrived' : ''} tabindex="-1" open=${open} onToggle=${e => this.setState({open: e.currentTarget.open})}>
            <summary>All controllers, of each replica</summary>
            ${open && html`
              <p><label>of <select value=${chosen.key} onChange=${e => this.setState({of: e.target.value})}>
                ${replicas.map(r => html`<option key=${r.key} value=${r.key}>${r.shard}: ${r.name}${r.leads ? ', leads' : ''}</option>`)}
              </select></label></p>
              <${All} replica=${chosen} />`}
          </details>`}
      </section>`;
  }
}

function Failing({replica, controller: c}) {
  return html`
    <li class=${bad.has(c.state) ? 'bad' : 'warn'}>
      <p><span class="mark" aria-hidden="true">${bad.has(c.state) ? '✖' : '▲'}</span> <strong>${c.name}</strong> of <a href=${`#controllers/${replica.key}`}>${replica.name}</a>
        ${c.ranges?.length > 0 && html`, in ${count(c.ranges.length, 'range')} (${listed(c.ranges.slice(0, told).map(r => r.range))}${c.ranges.length > told && ' ...'}),`}
        ${' '}<span class="state">${c.state === 'running' ? 'works again' : c.state}${c.tolerated && ', tolerated'}</span>${c.since && ` for ${lasting(secondsBetween(c.since, replica.observed))}`}${c.restarts > 0 && `, ${count(c.restarts, 'restart')}`}</p>
      ${c.heldBy && html`<p>It has work of logical cluster ${c.heldBy} only, and finishes none of it.</p>`}
      ${c.lastError && html`<p class="error"><code>${c.lastError}</code></p><p class="dim">${ago(c.failed, replica.observed)}${c.effect && `: ${c.effect}`}</p>`}
    </li>`;
}

function All({replica}) {
  return html`
    <div class="scroller" tabindex="0" role="region" aria-label=${`Controllers of ${replica.name}`}><table class="controllers">
      <thead><tr><th scope="col">name</th><th scope="col">state</th><th scope="col">due</th><th scope="col">done</th><th scope="col">first pass</th></tr></thead>
      <tbody>
        ${(replica.controllers || []).map(c => html`
          <tr key=${c.name} class=${bad.has(c.state) ? 'fault' : ''}>
            <th scope="row">${c.name}</th>
            <td>${c.state}${c.tolerated && ', tolerated'} <span class="dim">${c.since && lasting(secondsBetween(c.since, replica.observed))}${c.restarts > 0 && `, ${count(c.restarts, 'restart')}`}</span></td>
            <td>${c.users.pending.toLocaleString()}</td><td>${c.users.returned.toLocaleString()}</td><td>${swept(c)}</td>
          </tr>`)}
      </tbody>
    </table></div>`;
}
