// The tree of workspaces, and search by path.
import {html, Component} from './html.js';
import {Line, Node} from './tree.js';
import * as api from './api.js';

const patience = 250; // milliseconds without a key before a search begins

export class Workspaces extends Component {
  constructor() {
    super();
    this.state = {text: '', found: null, fault: ''};
  }

  // The page is drawn twice a second, and nothing here comes from above.
  shouldComponentUpdate(_, state) {
    return state !== this.state;
  }

  search(text) {
    this.setState({text});
    clearTimeout(this.timer);
    if (!text.trim()) {
      this.setState({found: null, fault: ''});
      return;
    }
    this.timer = setTimeout(async () => {
      try {
        const found = await api.found(text.trim());
        if (this.state.text === text) this.setState({found, fault: ''});
      } catch (error) {
        if (this.state.text === text) this.setState({found: null, fault: error.message});
      }
    }, patience);
  }

  render(_, {text, found, fault}) {
    return html`
      <section aria-labelledby="workspaces">
        <h2 id="workspaces">Workspaces</h2>
        <p><label>search <input type="search" value=${text} placeholder="part of a path: root:team" autocomplete="off" onInput=${e => this.search(e.target.value)} /></label></p>
        ${fault && html`<p class="fault" role="alert">${fault}</p>`}
        <p class="dim" role="status">${found && said(found)}</p>
        ${found && html`<ul class="tree found" aria-label="Workspaces found">${found.items.map(w => html`<li key=${w.path}><${Line} path=${w.path} phase=${w.phase} cluster=${w.cluster} shard=${w.shard} /></li>`)}</ul>`}
        ${found && Object.entries(found.faults || {}).map(([shard, why]) => html`<p class="fault" key=${shard}>shard ${shard} has not been searched: ${why}</p>`)}
        <div hidden=${!!found}><ul class="tree" role="tree" aria-label="Workspaces"><${Node} path="root" name="root" first=${true} /></ul></div>
      </section>`;
  }
}

function said(found) {
  if (found.items.length === 0) return 'none found';
  return `${found.items.length} found${found.more ? ', and there are more: type more of the path' : ''}`;
}
