// A shard whose replicas lead a share of its ranges each: who leads which, and one range in full.
import {html, Component} from './html.js';
import {count, lasting, secondsBetween} from './words.js';
import * as api from './api.js';

// spans writes numbers that are in order as people do: 0-3, 7.
function spans(numbers) {
  const runs = [];
  for (const n of numbers) {
    if (runs.at(-1)?.[1] === n - 1) runs.at(-1)[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([from, to]) => from === to ? `${from}` : `${from}-${to}`).join(', ');
}

// Whose shows which of all ranges some are: one row of the picture that all replicas together make.
const Whose = ({of, numbers, kind}) => html`
  <svg class=${`whose ${kind}`} viewBox=${`0 0 ${of} 1`} preserveAspectRatio="none" width="100%" height="12" aria-hidden="true">
    ${numbers.map(n => html`<rect key=${n} x=${n} y="0" width="1" height="1" />`)}
  </svg>`;

export class Ranges extends Component {
  constructor() {
    super();
    this.state = {picked: undefined};
  }

  render({shard, known, arrived, act}, {picked}) {
    const all = known.ranges || [];
    const nobodys = all.filter(r => !r.leader).map(r => r.range);
    const range = all[picked ?? nobodys[0] ?? 0];
    return html`
      <p class="label">${all.length > 0 ? `${count(all.length, 'range')}, led by` : 'nobody leads'}</p>
      ${known.waits && all.length === 0 && html`<p class="fault">${known.waits}</p>`}
      <ul class="ranges" aria-label=${`Replicas of ${shard.name}, and the ranges that each leads`}>
        ${(shard.replicas || []).map(r => html`<${Share} key=${api.idOf(shard, r)} shard=${shard} replica=${r} all=${all} present=${known.replicas || []} arrived=${arrived} />`)}
        ${nobodys.length > 0 && html`<li><p class="fault"><strong>nobody</strong>: ${spans(nobodys)}</p><${Whose} of=${all.length} numbers=${nobodys} kind="bad" /></li>`}
      </ul>
      ${(known.replicas || []).some(r => r.wants !== known.number) && html`<p class="fault">Replicas want different numbers of ranges: it changes when all want the same.</p>`}
      ${range && html`<${One} shard=${shard} all=${all} range=${range} pick=${n => this.setState({picked: n})} act=${act} />`}`;
  }
}

// leads reports whether a replica is who leads a range. Two may have one name.
const leads = (replica, range) => range.leader === replica.name && (!range.leaderInstance || !replica.instance || range.leaderInstance === replica.instance);

function Share({shard, replica, all, present, arrived}) {
  const id = `replica/${shard.name}/${api.idOf(shard, replica)}`;
  const own = all.filter(r => leads(replica, r)).map(r => r.range);
  const share = present.find(p => p.name === replica.name && (!p.instance || !replica.instance || p.instance === replica.instance))?.share;
  return html`
    <li id=${id} class=${`replica ${arrived === id ? 'arrived' : ''}`} tabindex="-1">
      <p><a href=${`#${id}`}><strong>${replica.name}</strong></a> ${replica.fault ? html`<span class="fault">does not answer</span>` : ''}
        ${own.length > 0 && html` <span>leads <strong>${own.length}</strong></span>`}${share !== undefined && share !== own.length && html` <span class="dim">(its share is ${share})</span>`}${own.length > 0 && html`<span class="dim">: ${spans(own)}</span>`}</p>
      ${all.length > 0 && html`<${Whose} of=${all.length} numbers=${own} kind="lead" />`}
      <p class="dim">${(replica.url || '').replace(/^https:\/\//, '')}${replica.fault && `: ${replica.fault}`}</p>
      ${(replica.notReady || []).map(c => html`<p class="fault" key=${c.name}>not ready: ${c.name}: ${c.error}</p>`)}
    </li>`;
}

function One({shard, all, range, pick, act}) {
  const leader = (shard.replicas || []).find(r => leads(r, range));
  const own = leader?.ranges?.ranges?.[range.range]; // a leader knows since when
  return html`
    <div class="row range">
      <p><label>Range <select value=${range.range} onChange=${e => pick(Number(e.target.value))}>
          ${all.map(r => html`<option key=${r.range} value=${r.range}>${r.range}</option>`)}
        </select></label> ${range.leader ? html`is led by <strong>${range.leader}</strong>, in epoch <strong class="epoch">${range.epoch}</strong>${own?.since && html`, for ${lasting(secondsBetween(own.since, leader.observed))}`}`
          : html`<span class="fault">is led by nobody${range.leaderlessSeconds > 0 && `, for ${lasting(range.leaderlessSeconds)}`}</span>`}
        ${range.lastStepDown && html`<span class="dim">; before: ${range.lastStepDown}</span>`}</p>
      ${leader && !leader.fault && html`<button type="button" onClick=${() => act(stepDown(shard, range))}>Have ${range.leader} step down from range ${range.range}</button>`}
    </div>`;
}

function stepDown(shard, range) {
  return {
    title: `Have ${range.leader} step down from range ${range.range}`,
    verb: 'step down', reasoned: true,
    text: `The term of ${range.leader} in range ${range.range} ends: its controllers of that range are stopped and joined. Another replica leads it next, usually within 50 ms. Other ranges go on, and all replicas keep serving.`,
    run: async reason => {
      const ended = await api.stepDown(shard.name, range.epoch, '', reason || 'by the page', range.range);
      return {shard: shard.name, replica: ended.replica, epoch: ended.epoch, range: range.range};
    },
  };
}
