// The page: it asks twice a second how the installation is, and shows it. All that is shown comes from `state`.
import {html, render} from './html.js';
import * as api from './api.js';
import {at, count, gapBefore, lasting} from './words.js';
import {Problems} from './problems.js';
import {Shards} from './shards.js';
import {Fronts} from './fronts.js';
import {Timeline} from './timeline.js';
import {Controllers} from './controllers.js';
import {Workspaces} from './workspaces.js';
import {Ask} from './ask.js';

const every = 500; // milliseconds between two questions
const termsEvery = 5000; // the latest terms come with each answer
const freshFor = 10000; // for how long a change is marked that happened while somebody looked
const toldFor = 60000; // for how long it is told what an action did
const awaited = 30000; // how long the next leader may take, until the page says that nobody leads

const state = {
  installation: null, // the latest answer
  heard: 0, // when it came, by this browser's clock
  fault: '', // why there is none since
  memory: {}, // by shard: {terms, fault, none, epoch, asked}, all that is remembered; none: the server keeps no history; heard: when the shard last answered
  epochs: {}, // by shard: that of the latest leader
  fresh: {}, // by shard: when another one began to lead, by this browser's clock
  news: '', // the latest of these, in words
  arrived: '', // what the URL's fragment names
  asking: null, // an action that waits for a yes
  told: '', // what the last action did
  awaits: null, // the end of a term that was asked for: {shard, range, replica, epoch, since}
};

function update(change) {
  Object.assign(state, change);
  render(html`<${Page} ...${state} />`, document.getElementById('page'));
}

// act asks first, and then does what is asked for.
function act(action) {
  update({asking: action});
}

async function confirmed(action, reason) {
  update({asking: null, told: `${action.title} ...`, awaits: null});
  try {
    const done = await action.run(reason);
    if (done.text) tell(done.text);
    else update({told: `${done.replica} hands over ...`, awaits: {...done, since: Date.now()}});
  } catch (error) {
    tell(`${action.title}: ${error.message}`);
  }
}

let telling;

// tell says what was done, for a while.
function tell(told) {
  clearTimeout(telling);
  telling = setTimeout(() => update({told: ''}), toldFor);
  update({told, awaits: null});
}

// leaderOf returns who leads a shard, or one of its ranges, with the term's epoch, and for how long nobody did before, if that is known.
function leaderOf(shard, range) {
  if (range !== undefined) {
    const of = api.divided(shard)?.ranges?.[range];
    if (!of?.leader) return undefined;
    const [term, before] = (shard.terms || []).filter(t => (t.range || 0) === range);
    return {name: of.leader, epoch: of.epoch, gap: term?.epoch === of.epoch && before ? gapBefore(term, before) : undefined};
  }
  const leader = api.leaderOf(shard);
  if (leader?.election?.state !== 'leading') return undefined;
  const epoch = leader.election.epoch, [term, before] = shard.terms || [];
  return {name: leader.name, epoch, gap: term?.epoch === epoch && before ? gapBefore(term, before) : undefined};
}

// follow up what was asked for: who leads next, and how soon.
function settle() {
  const {awaits, installation} = state;
  if (!awaits) return;
  const now = leaderOf(installation.shards.find(s => s.name === awaits.shard) || {}, awaits.range);
  const what = awaits.range === undefined ? '' : ` range ${awaits.range}`;
  const waited = Date.now() - awaits.since;
  if (now?.epoch > awaits.epoch && (now.gap !== undefined || waited > 5000)) {
    tell(`${now.name} leads${what}, ${now.gap === undefined ? `in epoch ${now.epoch}` : `${lasting(now.gap)} later`}. ${awaits.replica} handed over, as you asked.`);
  } else if (waited > awaited) {
    tell(`${awaits.replica} has given the lease up, and nobody has been seen to lead${what && `${what} of`} shard ${awaits.shard} since.`);
  }
}

// remember notes whose term has begun since the last answer, and when shards last answered.
function remember(installation) {
  for (const shard of installation.shards) {
    const memory = state.memory[shard.name] ||= {};
    if (!shard.fault) memory.heard = installation.observed;
    const leader = leaderOf(shard);
    if (!leader) continue;
    const known = state.epochs[shard.name];
    state.epochs[shard.name] = leader.epoch;
    if (known === undefined || known === leader.epoch) continue;
    state.fresh[shard.name] = Date.now();
    state.news = `${leader.name} leads shard ${shard.name} now.`;
  }
  for (const [name, since] of Object.entries(state.fresh)) {
    if (Date.now() - since > freshFor) delete state.fresh[name];
  }
}

// arrive goes to what the URL's fragment names, once it is there.
let arriving = true;

function arrive() {
  const there = arriving && state.installation && state.arrived && document.getElementById(state.arrived);
  if (!there) return;
  arriving = false;
  there.scrollIntoView({block: 'center'});
  there.focus({preventScroll: true});
}

function read() {
  arriving = true;
  update({arrived: decodeURIComponent(location.hash.slice(1))});
  arrive();
}

// health says how the installation is, in a few words.
function Health({problems}) {
  const of = severity => problems.filter(p => p.severity === severity).length;
  const parts = [['critical', 'critical problem'], ['warning', 'warning'], ['notice', 'notice']].filter(([severity]) => of(severity) > 0);
  return html`<p class="health">${parts.length === 0 ? html`<span class="pill well"><span aria-hidden="true">✔</span> All is well</span>`
    : parts.map(([severity, one]) => html`<a key=${severity} class=${`pill ${severity}`} href="#problems">${count(of(severity), one)}</a>`)}</p>`;
}

function Page({installation, heard, fault, memory, fresh, news, arrived, asking, told}) {
  const stale = !!fault && Date.now() - heard > 2 * every;
  const shards = installation?.shards || [];
  const replicas = shards.flatMap(s => s.replicas || []);
  const versions = [...new Set(replicas.map(r => r.version).filter(v => v))];
  return html`
    <header>
      <h1><span class="crown" aria-hidden="true">♛</span> Regent</h1>
      <p class="whose">${installation ? html`${count(shards.length, 'shard')}, ${count(replicas.length, 'replica')}` : 'asking ...'}</p>
      ${installation && html`<${Health} problems=${installation.problems || []} />`}
      <p class=${stale ? 'live stale' : 'live'} role="status">
        <span class="dot" aria-hidden="true"></span>
        ${stale ? html`no answer ${heard ? `since ${at(heard, Date.now())}` : 'yet'}: ${fault}` : installation ? 'live' : ''}
      </p>
    </header>
    <p class="unseen" role="status">${news}</p>
    <div class="told" role="status" aria-live="polite">${told && html`<span>${told}</span> <button type="button" class="quiet" onClick=${() => update({told: ''})}>Dismiss</button>`}</div>
    ${installation && html`
      <main class=${stale ? 'stale' : ''}>
        <${Problems} problems=${installation.problems || []} />
        <${Shards} installation=${installation} memory=${memory} fresh=${fresh} arrived=${arrived} act=${act} />
        <${Timeline} installation=${installation} memory=${memory} />
        <div class="side">
          <${Controllers} installation=${installation} arrived=${arrived} />
          ${(installation.fronts || []).length > 0 && html`<${Fronts} installation=${installation} />`}
        </div>
        <${Workspaces} root=${installation.root} names=${shards.map(s => s.name)} silent=${shards.filter(s => s.fault).map(s => s.name)} number=${shards.reduce((sum, s) => sum + s.clusters, 0)}
          servers=${shards.filter(s => s.name === installation.root).flatMap(s => [s.url, ...(s.replicas || []).filter(r => !r.fault).map(r => r.url)]).filter(url => url)} />
      </main>`}
    <footer>${installation && html`Observed ${at(installation.observed)} by ${installation.by}${versions.length > 0 && html`; version ${versions.join(', ')}`}. The same on a terminal: <code>regent status</code>.`} <a href="docs/" target="regent-docs">The docs</a> are those of this version.</footer>
    ${asking && html`<${Ask} action=${asking} yes=${reason => confirmed(asking, reason)} no=${() => update({asking: null})} />`}`;
}

// follow asks how the installation is, again and again. A question that is not answered is not asked twice.
async function follow() {
  for (;;) {
    const began = Date.now();
    try {
      const installation = await api.installation();
      remember(installation);
      update({installation, heard: Date.now(), fault: ''});
      document.title = `${installation.problems?.some(p => p.severity === 'critical') ? '✖ ' : ''}Regent`;
      settle();
      arrive();
      askForTerms();
    } catch (error) {
      update({fault: error.message});
    }
    await new Promise(done => setTimeout(done, Math.max(50, began + every - Date.now())));
  }
}

// askForTerms asks for the history of each shard now and then, and at once if its epoch has changed.
function askForTerms() {
  for (const shard of state.installation.shards) {
    const epoch = api.divided(shard)?.ranges?.map(r => r.epoch).join() || api.leaderOf(shard)?.election.epoch;
    const known = state.memory[shard.name];
    if (shard.fault || (known.asked && known.epoch === epoch && Date.now() - known.asked < termsEvery)) continue;
    Object.assign(known, {epoch, asked: Date.now()});
    const learn = what => update({memory: {...state.memory, [shard.name]: {...state.memory[shard.name], ...what}}});
    api.terms(shard.name).then(answer => learn({terms: answer.terms || [], none: false, fault: ''}), error => learn({none: error.status === 404, fault: error.message}));
  }
}

addEventListener('hashchange', read);
read();
follow();
