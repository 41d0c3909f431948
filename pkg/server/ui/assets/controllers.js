// What the controllers of a replica do.
import {html, Component} from './html.js';
import {leaderOf} from './api.js';
import {ago, lasting, secondsBetween} from './words.js';

const bad = new Set(['failed', 'stalled', 'late', 'restarting']);

export class Controllers extends Component {
  constructor() {
    super();
    this.state = {of: ''};
  }

  render({installation}) {
    const replicas = installation.shards.flatMap(s => (s.replicas || []).filter(r => !r.fault).map(r => ({...r, leads: r === leaderOf(s)})));
    const key = r => `${r.shard}/${r.instance || r.name}`;
    const chosen = replicas.find(r => key(r) === this.state.of) || replicas.find(r => r.leads) || replicas[0];
    return html`
      <section aria-labelledby="controllers">
        <h2 id="controllers">Controllers</h2>
        <p><label>of <select value=${chosen && key(chosen)} onChange=${e => this.setState({of: e.target.value})}>
          ${replicas.map(r => html`<option key=${key(r)} value=${key(r)}>${r.shard}: ${r.name}${r.leads ? ', leads' : ''}</option>`)}
        </select></label></p>
        ${chosen && html`
          <div class="scroller"><table class="controllers">
            <thead><tr><th scope="col">name</th><th scope="col">state</th><th scope="col">changes due</th><th scope="col">sweep</th><th scope="col">restarts</th><th scope="col">last error</th></tr></thead>
            <tbody>
              ${(chosen.controllers || []).map(c => html`
                <tr key=${c.name} class=${bad.has(c.state) ? 'fault' : ''}>
                  <th scope="row">${c.name}</th>
                  <td>${c.state}${c.tolerated && ', tolerated'} <span class="dim">${c.since && `for ${lasting(secondsBetween(c.since, chosen.observed))}`}</span></td>
                  <td>${c.users.pending} <span class="dim">${c.users.returned.toLocaleString()} done</span></td>
                  <td>${c.sweep.running ? `${c.sweep.pending} left` : c.sweep.returned > 0 ? 'done' : ''}</td>
                  <td>${c.restarts || ''}</td>
                  <td>${c.lastError && html`${c.lastError} <span class="dim">${ago(c.failed, chosen.observed)}${c.effect && `: ${c.effect}`}</span>`}</td>
                </tr>`)}
            </tbody>
          </table></div>`}
      </section>`;
  }
}
