// The tree of workspaces, a page at a time, and search by path.
import {html, Component} from './html.js';
import * as api from './api.js';

const patience = 250; // milliseconds without a key before a search begins

export class Workspaces extends Component {
  constructor() {
    super();
    this.state = {text: '', found: null, fault: ''};
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
        <p><label>search <input type="search" value=${text} placeholder="part of a path, as in root:team" onInput=${e => this.search(e.target.value)} /></label></p>
        ${fault && html`<p class="fault" role="alert">${fault}</p>`}
        <div aria-live="polite">
          ${found ? html`
            <ul class="tree">${found.items.map(w => html`<li key=${w.path}><${Line} path=${w.path} phase=${w.phase} cluster=${w.cluster} shard=${w.shard} /></li>`)}</ul>
            ${found.items.length === 0 && html`<p class="dim">none</p>`}
            ${found.more && html`<p class="dim">and more: type more of the path</p>`}`
          : html`<ul class="tree" role="tree" aria-label="Workspaces"><${Node} path="root" name="root" open=${true} /></ul>`}
        </div>
      </section>`;
  }
}

function Line({path, name, phase, cluster, shard}) {
  return html`<span>${name || path}</span> ${phase && html`<span class=${phase === 'Ready' ? 'dim' : 'tag'}>${phase}</span>`} ${cluster && html`<code class="dim">${cluster}</code>`} ${shard && html`<span class="dim">on ${shard}</span>`}`;
}

// Node is a workspace that shows those below it when it is opened.
class Node extends Component {
  constructor(props) {
    super();
    this.state = {open: !!props.open, items: null, next: '', fault: '', loading: false};
  }

  componentDidMount() {
    if (this.state.open) this.load();
  }

  async load() {
    if (this.state.loading) return;
    this.setState({loading: true, fault: ''});
    try {
      const page = await api.workspaces(this.props.path, this.state.next);
      this.setState({items: [...(this.state.items || []), ...page.items], next: page.metadata.continue || '', left: page.metadata.remainingItemCount, loading: false});
    } catch (error) {
      this.setState({fault: error.message, loading: false, items: this.state.items || []});
    }
  }

  toggle() {
    const open = !this.state.open;
    this.setState({open});
    if (open && this.state.items === null) this.load();
  }

  key(e) {
    const opens = e.key === 'ArrowRight' && !this.state.open, closes = e.key === 'ArrowLeft' && this.state.open;
    if (opens || closes || e.key === 'Enter' || e.key === ' ') {
      e.preventDefault();
      e.stopPropagation();
      this.toggle();
    } else if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      e.stopPropagation();
      const all = [...e.currentTarget.closest('[role=tree]').querySelectorAll('[role=treeitem] > .line')];
      all[all.indexOf(e.currentTarget) + (e.key === 'ArrowDown' ? 1 : -1)]?.focus();
    }
  }

  render({path, name, phase, cluster}, {open, items, next, left, fault, loading}) {
    return html`
      <li role="treeitem" aria-expanded=${open} aria-label=${path}>
        <span class="line" tabindex="0" onClick=${() => this.toggle()} onKeyDown=${e => this.key(e)}>
          <span class="twist" aria-hidden="true">${open ? '▾' : '▸'}</span> <${Line} path=${path} name=${name} phase=${phase} cluster=${cluster} />
        </span>
        ${open && html`
          <ul role="group">
            ${(items || []).map(w => html`<${Node} key=${w.metadata.name} path=${`${path}:${w.metadata.name}`} name=${w.metadata.name} phase=${w.status?.phase} cluster=${w.spec?.cluster} />`)}
            ${items && items.length === 0 && !fault && html`<li class="dim">none</li>`}
            ${fault && html`<li class="fault">${fault} <button type="button" onClick=${() => this.load()}>Try again</button></li>`}
            ${next && html`<li><button type="button" disabled=${loading} onClick=${() => this.load()}>More${left ? ` (${left.toLocaleString()} left)` : ''}</button></li>`}
          </ul>`}
      </li>`;
  }
}
