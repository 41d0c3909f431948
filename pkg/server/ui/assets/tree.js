// The tree of workspaces, a page of each level at a time. One of its lines can be reached by Tab; the arrow keys go on from there.
import {html, Component} from './html.js';
import * as api from './api.js';

const ofShard = 'regent.dev/shard'; // the label of a workspace's shard

// Line is how a workspace is shown, wherever. silent are the shards that do not answer.
export function Line({path, name, phase, shard, silent}) {
  const isDown = shard && silent?.includes(shard);
  return html`<span class="path">${name || path}</span> ${isDown ? html`<span class="tag fault">shard ${shard} does not answer</span>`
    : phase && phase !== 'Ready' && html`<span class="tag">${phase}</span>`} ${shard && !isDown && html`<span class="dim">on ${shard}</span>`}`;
}

// move gives the focus, and the place in the order of Tab, to another item.
function move(from, to) {
  if (!to) return;
  from.closest('[role=tree]').querySelectorAll('[role=treeitem][tabindex="0"]').forEach(i => { i.tabIndex = -1; });
  to.tabIndex = 0;
  to.focus();
}

// arrows moves among the items that are shown, and reports whether the key does that.
function arrows(e, item) {
  const all = [...item.closest('[role=tree]').querySelectorAll('[role=treeitem]')];
  const at = all.indexOf(item);
  const to = {
    ArrowDown: () => all[at + 1],
    ArrowUp: () => all[at - 1],
    Home: () => all[0],
    End: () => all.at(-1),
    ArrowLeft: () => item.parentElement.closest('[role=treeitem]'),
    ArrowRight: () => item.querySelector('[role=treeitem]'),
  }[e.key];
  if (!to) return false;
  move(item, to());
  return true;
}

// pressed handles a key on an item: act for Enter and space, or a move.
function pressed(e, act, opens, closes) {
  if (e.target !== e.currentTarget || e.altKey || e.ctrlKey || e.metaKey) return; // an item in it has handled the key
  if (e.key === 'Enter' || e.key === ' ' || (e.key === 'ArrowRight' && opens) || (e.key === 'ArrowLeft' && closes)) act();
  else if (!arrows(e, e.currentTarget)) return;
  e.preventDefault();
}

// Step is an item that does something.
class Step extends Component {
  // It goes when there is no more to do. The focus must not go with it.
  componentWillUnmount() {
    if (this.item === document.activeElement) move(this.item, this.item.parentElement.closest('[role=treeitem]'));
  }

  render({act, busy, children}) {
    const once = () => busy || act();
    return html`<li role="treeitem" class="step" tabindex="-1" aria-busy=${!!busy} ref=${i => { this.item = i || this.item; }}
        onClick=${once} onKeyDown=${e => pressed(e, once)}>${children}</li>`;
  }
}

// Node is a workspace that shows those below it when it is opened.
export class Node extends Component {
  constructor(props) {
    super();
    this.state = {open: !!props.first, items: null, next: '', left: 0, fault: '', loading: false};
  }

  componentDidMount() {
    if (this.state.open) this.load();
  }

  // The page is drawn twice a second. What has not changed here is left alone, however much is open.
  shouldComponentUpdate(props, state) {
    return state !== this.state || props.phase !== this.props.phase || props.cluster !== this.props.cluster || props.silent.join() !== this.props.silent.join();
  }

  async load() {
    if (this.state.loading) return;
    this.setState({loading: true, fault: ''});
    try {
      const page = await this.page();
      const known = new Set((this.state.items || []).map(w => w.metadata.name));
      const items = [...(this.state.items || []), ...page.items.filter(w => !known.has(w.metadata.name))];
      this.setState({items, next: page.metadata.continue || '', left: page.metadata.remainingItemCount, loading: false});
    } catch (error) {
      this.setState({fault: error.message, loading: false});
    }
  }

  // page asks for the next page. What was seen by the first one may be forgotten when somebody asks for more: then the rest is as it is now.
  async page() {
    try {
      return await api.workspaces(this.props.path, this.state.next);
    } catch (error) {
      if (error.status !== 410 || !this.state.next) throw error;
      return await api.workspaces(this.props.path, error.next);
    }
  }

  toggle() {
    const open = !this.state.open;
    this.setState({open});
    if (!open) return;
    this.setState({items: null, next: ''}); // there may be others by now
    this.load();
  }

  render({path, name, phase, cluster, url, shard, several, silent, choose, level = 1, first}, {open, items, next, left, fault, loading}) {
    const isDown = silent.includes(shard);
    const says = isDown ? `${path}, shard ${shard} does not answer` : phase && phase !== 'Ready' ? `${path}, ${phase}` : path;
    return html`
      <li role="treeitem" tabindex=${first ? 0 : -1} aria-expanded=${open} aria-level=${level} aria-busy=${loading} aria-label=${says}
          onFocus=${e => e.target === e.currentTarget && choose({path, phase, cluster, url, shard})} onKeyDown=${e => pressed(e, () => this.toggle(), !open, open)}>
        <span class="line" onClick=${e => { move(e.currentTarget, e.currentTarget.parentElement); this.toggle(); }}>
          <span class="twist" aria-hidden="true">${open ? '▾' : '▸'}</span> <${Line} path=${path} name=${name} phase=${phase} shard=${several && shard} silent=${silent} />
        </span>
        ${open && html`
          <ul role="group">
            ${(items || []).map(w => html`<${Node} key=${w.metadata.name} level=${level + 1} path=${`${path}:${w.metadata.name}`} name=${w.metadata.name} phase=${w.status?.phase} cluster=${w.spec?.cluster} url=${w.spec?.URL}
              shard=${w.metadata.labels?.[ofShard] || shard} several=${several} silent=${silent} choose=${choose} />`)}
            ${!items && loading && html`<li role="none" class="dim">asking ...</li>`}
            ${items && items.length === 0 && html`<li role="none" class="dim">none</li>`}
            ${fault ? html`<${Step} act=${() => this.load()} busy=${loading}><span class="fault">${fault}</span> <span class="act">Try again</span><//>`
              : next && html`<${Step} act=${() => this.load()} busy=${loading}><span class="act">More${left > 0 ? ` (${left.toLocaleString()} left)` : ''}</span><//>`}
          </ul>`}
      </li>`;
  }
}
