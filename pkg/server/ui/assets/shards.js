// The installation at a glance: of each shard who leads, what the last change was, and who could take over now.
import {html} from './html.js';
import {ago, at, count, gapBefore, happened, lasting, reasonOf, secondsBetween, verdict} from './words.js';
import {AskedBy} from './fronts.js';
import {Change, Phases} from './change.js';
import {Ranges} from './ranges.js';
import * as api from './api.js';

const usualLease = 15; // seconds, if nobody says how long the lease is

export function Shards({installation, memory, fresh, arrived, act}) {
  return html`
    <section class="bare" aria-labelledby="shards">
      <h2 id="shards" class="unseen">Shards and replicas</h2>
      <ul class=${`shards of${Math.min(3, installation.shards.length)}`} aria-label="Shards">
        ${installation.shards.map(s => html`<${Shard} key=${s.name} shard=${s} last=${memory[s.name]} installation=${installation} isFresh=${fresh[s.name]} arrived=${arrived} act=${act} />`)}
      </ul>
    </section>`;
}

// stateOf is how a shard is, in a word for its dot and in words for people.
function stateOf(shard) {
  const leader = api.leaderOf(shard);
  if (shard.fault) return ['bad', 'does not answer'];
  const ranges = api.divided(shard);
  if (ranges && !ranges.ranges?.length) return ['bad', 'nobody leads'];
  if (ranges?.ranges.some(r => !r.leader)) return ['bad', 'nobody leads some ranges'];
  if (ranges) return shard.replicas.length < 2 || shard.replicas.some(r => r.fault || r.notReady?.length > 0) ? ['warn', 'led, but not as it should be'] : ['well', 'led'];
  if (!leader) return ['bad', 'nobody leads'];
  if (leader.fault) return ['bad', 'its leader does not answer'];
  if (shard.replicas.some(r => r.fault || r.notReady?.length > 0) || takers(shard).length === 0) return ['warn', 'led, but not as it should be'];
  return ['well', 'led'];
}

// takers are the replicas that could take over now: those that stand by and hear of the leader.
export const takers = shard => (shard.replicas || []).filter(r => !r.fault && r !== api.leaderOf(shard) && r.election.state === 'standing by' && r.election.contact?.state === 'alive');

function Shard({shard, last, installation, isFresh, arrived, act}) {
  const [state, says] = stateOf(shard);
  const leader = api.leaderOf(shard), ranges = api.divided(shard);
  const id = `shard/${shard.name}`;
  const fronts = installation.fronts || [];
  return html`
    <li id=${id} class=${`card shard ${state} ${isFresh ? 'fresh' : ''} ${arrived === id ? 'arrived' : ''}`} tabindex="-1">
      <div class="head">
        <h3><span class="dot" role="img" aria-label=${says}></span> <a href=${`#${id}`}>${shard.name}</a></h3>
        ${shard.name === installation.root && installation.shards.length > 1 && html`<span class="tag">root shard</span>`}
        ${shard.cordoned && html`<span class="tag">cordoned</span>`}
        ${!shard.fault && html`<span class="dim">${count(shard.clusters, 'logical cluster')}${shard.capacity > 0 && ` of ${shard.capacity.toLocaleString()}`}</span>`}
        ${!shard.fault && html`<button type="button" class="quiet" onClick=${() => act(cordon(shard))}>${shard.cordoned ? 'Uncordon' : 'Cordon'} ${shard.name}</button>`}
      </div>
      ${shard.fault ? html`<${Silent} shard=${shard} last=${last} observed=${installation.observed} />` : html`
        <div class="glance">
          <div class="who">
            ${ranges ? html`<${Ranges} shard=${shard} known=${ranges} arrived=${arrived} act=${act} />` : html`
              ${leader ? html`<${Leader} replica=${leader} shard=${shard} arrived=${arrived} act=${act} />` : html`<p class="nobody big">nobody is known to lead</p>`}
              <${Others} shard=${shard} leader=${leader} observed=${installation.observed} arrived=${arrived} act=${act} />`}
            <${AskedBy} shard=${shard} fronts=${fronts} />
            <${Moves} moves=${shard.moves} observed=${installation.observed} />
          </div>
          <${Last} shard=${shard} terms=${shard.terms || last?.terms} lease=${leader?.election?.leaseDurationSeconds} observed=${installation.observed} isFresh=${isFresh} />
        </div>`}
    </li>`;
}

const fewMoves = 5;

// Moves are the logical clusters that come to a shard, and that leave it.
function Moves({moves, observed}) {
  if (!moves) return null;
  const other = m => m.shard ? html` ${m.state === 'comes' ? 'from' : 'for'} shard <strong>${m.shard}</strong>` : ' out of a file';
  return html`
    <div class="moves">
      <p class="label">moves</p>
      ${moves.oldest.slice(0, fewMoves).map(m => html`<p><strong>${m.path || m.cluster}</strong> ${m.state}${other(m)}${m.since && `, since ${at(m.since, observed)}`}</p>`)}
      ${moves.number > fewMoves && html`<p class="dim">and ${moves.number - fewMoves} more</p>`}
    </div>`;
}

// Silent has what is remembered of a shard that does not answer.
function Silent({shard, last, observed}) {
  const heard = shard.heard || last?.heard, terms = shard.terms || last?.terms;
  return html`
    <p class="big fault">does not answer</p>
    <p class="silence">${heard ? html`Last heard ${at(heard, observed)}, ${ago(heard, observed)}.` : 'It has not answered since anybody asked.'} Its users are refused; the other shards keep working.</p>
    ${terms?.[0]?.replica && html`<p>When it was last heard, <strong>${terms[0].replica}</strong> led, in epoch ${terms[0].epoch}.</p>`}
    <p class="dim">${shard.fault}</p>
    ${terms?.length > 1 && html`<${Last} shard=${shard} terms=${terms} observed=${observed} />`}`;
}

const isOfOneRange = (a, b) => (a.range || 0) === (b.range || 0);

// Last is the last change of the leader: for how long nobody led, and what had happened.
function Last({shard, terms = [], lease, observed, isFresh}) {
  const term = terms[0], before = terms.slice(1).find(t => isOfOneRange(t, term));
  if (!term) return html`<div class="change"><p class="label">last change</p><p class="dim">No term is remembered yet.</p></div>`;
  const gap = before && gapBefore(term, before);
  if (!before) return html`<div class="change"><p class="label">last change</p><p class="big none">none yet</p><p>${term.replica || 'Its leader'} leads the first term that is remembered${term.began && html`, since ${at(term.began, observed)}`}.</p></div>`;
  const kind = gap === undefined ? '' : verdict(gap, lease || usualLease);
  return html`
    <div class=${`change ${kind}`}>
      <p class="label">last change${api.divided(shard) && `, of range ${term.range || 0}`}${shard.fault && ' that is known'} ${isFresh && html`<span class="tag now">just now</span>`}</p>
      <p class="measure">${gap === undefined ? html`<span class="big none">…</span> being measured` : html`<span class="big">${lasting(gap)}</span> nobody led`}</p>
      <p class="what"><strong>${before.replica || before.holder || 'The leader before'}</strong> ${happened(before, term)}${before.ended && ` at ${at(before.ended, observed)}, ${ago(before.ended, observed)}`}${reasonOf(before) && html`: ${reasonOf(before)}`}.
        ${term.replica && term.replica !== before.replica ? html` <strong>${term.replica}</strong> took over.` : term.replica && html` It leads again.`}</p>
      <${Change} term=${term} before=${before} kind=${kind} />
      <${Phases} term=${term} />
    </div>`;
}

// placeOf is where a replica is, for people.
const placeOf = replica => (replica.url || '').replace(/^https:\/\//, '');

function Leader({replica, shard, arrived, act}) {
  const e = replica.election || {};
  const id = `replica/${shard.name}/${api.idOf(shard, replica)}`;
  return html`
    <div id=${id} class=${`leader replica ${arrived === id ? 'arrived' : ''}`} tabindex="-1">
      <div class="row">
        <div>
          <p class="label">leads</p>
          <p class="name"><span class="crown" aria-hidden="true">♛</span> <a href=${`#${id}`}><strong>${replica.name}</strong></a></p>
          ${replica.fault ? html`<p class="fault">holds the lease, and does not answer: ${replica.fault}</p>` : html`
            <p>${e.since && html`for <strong>${lasting(secondsBetween(e.since, replica.observed))}</strong>`}${e.lease && html`, in epoch <strong class="epoch">${e.epoch}</strong>`}</p>
            <p class="dim">${placeOf(replica)}${e.holder && html`; ${kept(e, replica.observed)}`}</p>`}
        </div>
        ${!replica.fault && e.lease && html`<button type="button" onClick=${() => act(stepDown(shard, ''))}>Have ${replica.name} step down</button>`}
      </div>
      <${NotReady} replica=${replica} />
    </div>`;
}

// kept says how the lease is kept.
const kept = (election, now) => election.leaseDurationSeconds ? election.renewed && `lease renewed ${ago(election.renewed, now)}` : 'its lease does not expire';

function Others({shard, leader, observed, arrived, act}) {
  const others = (shard.replicas || []).filter(r => r !== leader);
  const ready = takers(shard).length;
  return html`
    <p class=${`label ${ready === 0 ? 'fault' : ''}`}>${ready === 0 ? 'nobody could take over now' : `could take over now: ${ready} of ${others.length}`}</p>
    ${others.length === 0 ? html`<p class="dim">${leader ? `${leader.name} is the only replica.` : 'There is no replica.'}</p>` : html`
      <ul class="standbys" aria-label=${`Replicas of ${shard.name} that do not lead`}>
        ${others.map(r => html`<${Standby} key=${api.idOf(shard, r)} replica=${r} shard=${shard} observed=${observed} isLed=${!!leader} arrived=${arrived} act=${act} />`)}
      </ul>`}`;
}

// contacts are the states of a standby's contact with the leader, in words.
const contacts = {
  alive: 'follows', connecting: 'makes contact with', silent: 'hears nothing from', dead: 'has seen the end of', absent: 'is told no address of', unreachable: 'cannot reach the probe of',
  refused: 'is refused by the probe of', untrusted: 'finds another process in the place of', unauthorized: 'is not let in by the probe of',
};

function Standby({replica, shard, observed, isLed, arrived, act}) {
  const id = `replica/${shard.name}/${api.idOf(shard, replica)}`;
  const as = (kind, inner) => html`<li id=${id} class=${`replica ${kind} ${arrived === id ? 'arrived' : ''}`} tabindex="-1">${inner}</li>`;
  const term = (shard.terms || []).find(t => t.replica === replica.name);
  const since = [replica.seen, replica.seen && term?.ended].filter(t => t).sort((a, b) => Date.parse(a) - Date.parse(b)).at(-1); // it lived when its term ended
  if (replica.fault) return as('gone', html`
    <p><a href=${`#${id}`}><strong>${replica.name}</strong></a> <span class="fault">does not answer${since && ` since ${at(since, observed)}, ${ago(since, observed)}`}</span></p>
    <p>${former(term, observed)}</p>
    <p class="dim">${placeOf(replica)}: ${replica.fault}</p>`);
  const e = replica.election, contact = e.contact;
  const follows = contact?.state === 'alive';
  return as(follows ? 'follows' : contact ? 'broken' : '', html`
    <div class="row">
      <div>
        <p><a href=${`#${id}`}><strong>${replica.name}</strong></a> ${e.state !== 'standing by' ? `is ${e.state}` : contact
          ? html`<span class=${follows ? '' : 'fault'}>${contacts[contact.state] || 'follows'} ${shard.leader || e.leader || 'the leader'}${!follows && html` <span class="dim">(contact: ${contact.state})</span>`}</span>` : 'stands by'}</p>
        <p class="dim">${contact?.heard && `heard it ${ago(contact.heard, replica.observed)}${contact.allowedSilenceSeconds > 0 ? `, and gives it ${lasting(contact.allowedSilenceSeconds)}` : ''}; `}${placeOf(replica)}</p>
      </div>
      ${isLed && follows && html`<button type="button" onClick=${() => act(stepDown(shard, replica.name))}>Hand over to ${replica.name}</button>`}
    </div>
    <${NotReady} replica=${replica} />`);
}

// former says what a replica was that does not answer any more.
function former(term, observed) {
  if (!term) return 'It stood by.';
  return `It led in epoch ${term.epoch}${term.ended ? `, until ${at(term.ended, observed)}` : ''}.`;
}

const NotReady = ({replica}) => (replica.notReady || []).map(c => html`<p class="fault" key=${c.name}>not ready: ${c.name}: ${c.error}</p>`);

function stepDown(shard, to) {
  const leader = api.leaderOf(shard);
  return {
    title: to ? `Hand over to ${to}` : `Have ${shard.leader} step down`,
    verb: to ? 'hand over' : 'step down', reasoned: true,
    text: `The term of ${shard.leader} ends: its controllers are stopped and joined. ${to ? `${to} leads next; the other standbys leave the lease to it.` : 'Another replica leads, usually within 50 ms.'} All replicas keep serving.`,
    run: async reason => {
      const ended = await api.stepDown(shard.name, leader.election.epoch, to, reason || 'by the page');
      return {shard: shard.name, replica: ended.replica, epoch: ended.epoch};
    },
  };
}

function cordon(shard) {
  const to = !shard.cordoned;
  return {
    title: `${to ? 'Cordon' : 'Uncordon'} shard ${shard.name}`,
    verb: to ? 'cordon' : 'uncordon',
    text: to ? 'It takes no new logical clusters until it is uncordoned. Those that it has stay, and are served.' : 'It takes new logical clusters again.',
    run: async () => {
      await api.cordon(shard.name, to);
      return {text: `Shard ${shard.name} ${to ? 'takes no new logical clusters' : 'takes new logical clusters'}.`};
    },
  };
}
