// The installation: its fronts, its shards, their replicas, and who follows whom.
import {html} from './html.js';
import {ago, count, lasting, secondsBetween} from './words.js';
import {AskedBy, Fronts, brokenness, unasked} from './fronts.js';
import {Lines} from './lines.js';
import * as api from './api.js';

export function Map({installation, act}) {
  const fronts = installation.fronts || [];
  return html`
    <section aria-labelledby="map">
      <h2 id="map">Shards and replicas</h2>
      <div class=${fronts.length > 0 ? 'map fronted' : 'map'}>
        <${Lines} />
        ${fronts.length > 0 && html`<${Fronts} installation=${installation} />`}
        <ul class="shards" aria-label="Shards">
          ${installation.shards.map(s => html`<${Shard} key=${s.name} shard=${s} root=${s.name === installation.root} fronts=${fronts} triggers=${installation.triggers} act=${act} />`)}
        </ul>
      </div>
    </section>`;
}

function Shard({shard, root, fronts, triggers, act}) {
  const replicas = shard.replicas || [];
  const leader = api.leaderOf(shard);
  const others = replicas.filter(r => r !== leader);
  return html`
    <li class=${`shard ${shard.fault ? 'fault broken' : brokenness(unasked(shard, fronts).length, fronts.length)}`}>
      <h3>${shard.name} ${root && html`<span class="tag">root</span>`} ${shard.cordoned && html`<span class="tag">cordoned</span>`}</h3>
      ${shard.fault ? html`<p class="fault">does not answer: ${shard.fault}</p>` : html`
        <p class="dim">${count(shard.clusters, 'logical cluster')}${shard.capacity > 0 && ` of ${shard.capacity.toLocaleString()}`}</p>
        <${AskedBy} shard=${shard} fronts=${fronts} />
        ${leader ? html`<${Leader} replica=${leader} shard=${shard} triggers=${triggers} act=${act} />` : html`<p class="nobody">nobody is known to lead</p>`}
        <ul class="standbys" aria-label=${`Replicas of ${shard.name} that do not lead`}>
          ${others.map(r => html`<${Standby} key=${r.instance || r.name} replica=${r} shard=${shard} led=${!!leader} act=${act} />`)}
        </ul>
        <p class="acts">
          <button type="button" onClick=${() => act(cordon(shard))}>${shard.cordoned ? 'Uncordon' : 'Cordon'} ${shard.name}</button>
        </p>`}
    </li>`;
}

// why says why the leader leads.
function why(shard, election, triggers) {
  const terms = shard.terms || [];
  const at = terms.findIndex(t => t.epoch === election.epoch);
  const trigger = terms[at]?.trigger || election.trigger || '';
  const reason = at >= 0 && terms[at + 1]?.endReason;
  return `${triggers?.[trigger] || trigger}${trigger && reason ? ` (${reason})` : ''}`;
}

// kept says how the lease is kept.
function kept(election, now) {
  if (!election.leaseDurationSeconds) {
    return 'holds the lease, which does not expire';
  }
  return election.renewed && `renewed ${ago(election.renewed, now)}`;
}

function Leader({replica, shard, triggers, act}) {
  const e = replica.election;
  return html`
    <div class="leader replica">
      <p><span aria-hidden="true">♛</span> <strong>${replica.name}</strong> leads${e.lease && html`, epoch <strong>${e.epoch}</strong>`}${e.since && html`, since ${lasting(secondsBetween(e.since, replica.observed))}`}</p>
      <p class="dim">${replica.url} ${replica.version}</p>
      ${e.holder && html`<p class="dim">${kept(e, replica.observed)}</p>`}
      ${why(shard, e, triggers) && html`<p class="dim">why: ${why(shard, e, triggers)}</p>`}
      <${NotReady} replica=${replica} />
      ${e.lease && html`<p class="acts"><button type="button" onClick=${() => act(stepDown(shard, ''))}>Have ${replica.name} step down</button></p>`}
    </div>`;
}

function Standby({replica, shard, led, act}) {
  if (replica.fault) {
    return html`<li class="replica fault"><p><strong>${replica.name}</strong> does not answer</p><p class="fault">${replica.fault}</p></li>`;
  }
  const e = replica.election;
  const contact = e.contact;
  const follows = contact?.state === 'alive';
  return html`
    <li class=${`replica ${follows ? 'follows' : contact ? 'broken' : ''}`}>
      <p><strong>${replica.name}</strong> ${e.state === 'standing by' ? (follows ? `follows ${shard.leader || e.leader || 'the leader'}` : 'stands by') : e.state}</p>
      ${contact && html`<p class=${follows ? 'dim' : 'fault'}>contact: ${contact.state}${contact.heard && `, last beat ${ago(contact.heard, replica.observed)}`}${contact.allowedSilenceSeconds > 0 && `, may be silent for ${lasting(contact.allowedSilenceSeconds)}`}</p>`}
      <p class="dim">${replica.url} ${replica.version}</p>
      <${NotReady} replica=${replica} />
      ${led && follows && html`<p class="acts"><button type="button" onClick=${() => act(stepDown(shard, replica.name))}>Hand over to ${replica.name}</button></p>`}
    </li>`;
}

function NotReady({replica}) {
  return (replica.notReady || []).map(c => html`<p class="fault" key=${c.name}>not ready: ${c.name}: ${c.error}</p>`);
}

function stepDown(shard, to) {
  const leader = api.leaderOf(shard);
  return {
    title: to ? `Hand over to ${to}` : `Have ${shard.leader} step down`,
    verb: to ? 'hand over' : 'step down',
    text: `The term of ${shard.leader} ends: its controllers are stopped and joined. ${to ? `${to} leads next; the other standbys leave the lease to it.` : 'Another replica leads, usually within 50 ms.'} All replicas go on serving.`,
    run: async () => {
      const ended = await api.stepDown(shard.name, leader.election.epoch, to, 'by the page');
      return `The term of ${ended.replica}, epoch ${ended.epoch}, ends.`;
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
      return `Shard ${shard.name} ${to ? 'takes no new logical clusters' : 'takes new logical clusters'}.`;
    },
  };
}
