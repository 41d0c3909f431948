// The tree of workspaces, and search by path.
import {html, Component} from './html.js';
import {Line, Node} from './tree.js';
import {count} from './words.js';
import {Copy} from './copy.js';
import * as api from './api.js';

const patience = 250; // milliseconds without a key before a search begins
const again = 3000; // milliseconds until it is repeated

export class Workspaces extends Component {
  constructor() {
    super();
    this.state = {text: '', found: null, fault: '', chosen: {path: 'root', cluster: 'root'}};
    this.choose = chosen => chosen.path !== this.state.chosen.path && this.setState({chosen});
  }

  // The page is drawn twice a second, and little here comes from above.
  shouldComponentUpdate(props, state) {
    return state !== this.state || ['silent', 'servers', 'names'].some(n => props[n].join() !== this.props[n].join()) || props.number !== this.props.number;
  }

  search(text) {
    this.setState({text});
    clearTimeout(this.timer);
    if (!text.trim()) {
      this.setState({found: null, fault: ''});
      return;
    }
    this.timer = setTimeout(() => this.find(text), patience);
  }

  // find searches, and again after some time: there may be others by then.
  async find(text) {
    let next;
    try {
      next = {found: await api.found(text.trim()), fault: ''};
    } catch (error) {
      next = {found: null, fault: error.message};
    }
    if (this.state.text !== text) return;
    this.setState(next);
    this.timer = setTimeout(() => this.find(text), again);
  }

  render({silent, names, servers, root, number}, {text, found, fault, chosen}) {
    const several = names.length > 1;
    return html`
      <section class="card wide" aria-labelledby="workspaces">
        <h2 id="workspaces">Workspaces <span class="dim">${count(number, 'logical cluster')}</span></h2>
        <p><label class="search">search <input type="search" value=${text} placeholder="part of a path: root:team" autocomplete="off" onInput=${e => this.search(e.target.value)} /></label></p>
        ${fault && html`<p class="fault" role="alert">${fault}</p>`}
        <p class="dim" role="status">${found && said(found)}</p>
        ${found && Object.entries(found.faults || {}).map(([shard, why]) => html`<p class="fault" key=${shard}>shard ${shard} has not been searched: ${why}</p>`)}
        <div class="panes">
        ${found && html`<div class="scroller tall"><ul class="tree found" aria-label="Workspaces found">${found.items.map(w => html`
          <li key=${w.path}><button type="button" class="line" onClick=${() => this.choose(w)}><${Line} path=${w.path} phase=${w.phase} shard=${several && w.shard} silent=${silent} /></button></li>`)}</ul></div>`}
        <div class="scroller tall" hidden=${!!found}><ul class="tree" role="tree" aria-label="Workspaces"><${Node} path="root" name="root" shard=${root} several=${several} silent=${silent} choose=${this.choose} first=${true} /></ul></div>
        <${Chosen} workspace=${chosen} server=${servers[0]} />
        </div>
      </section>`;
  }
}

// Chosen is how to use a workspace.
function Chosen({workspace: w, server}) {
  const url = w.url || `${server || location.origin}/clusters/${w.path}`;
  const command = `kubectl --server=${url} get namespaces`;
  return html`
    <div class="chosen" role="group" aria-label=${`Workspace ${w.path}`}>
      <p><strong>${w.path}</strong> ${w.cluster && html`<span class="dim">logical cluster <code>${w.cluster}</code></span>`}</p>
      <p class="command"><code>${command}</code><${Copy} text=${command} what="the kubectl command" /></p>
      <p class="command"><code>${url}</code><${Copy} text=${url} what="the URL" /></p>
    </div>`;
}

function said(found) {
  if (found.items.length === 0) return 'none found';
  return `${found.items.length} found${found.more ? ', and there are more: type more of the path' : ''}`;
}
