// The page: it asks twice a second how the installation is, and shows it. All that is shown comes from `state`.
import {html, render} from './html.js';
import * as api from './api.js';
import {at, count} from './words.js';
import {Problems} from './problems.js';
import {Map} from './map.js';
import {Timeline} from './timeline.js';
import {Controllers} from './controllers.js';
import {Workspaces} from './workspaces.js';
import {Ask} from './ask.js';

const every = 500; // milliseconds between two questions
const termsEvery = 5000; // the latest terms come with each answer

const state = {
  installation: null, // the latest answer
  heard: 0, // when it came, by this browser's clock
  fault: '', // why there is none since
  terms: {}, // by shard: {terms, fault, none, epoch, asked}, all that is remembered; none: the server keeps no history
  asking: null, // an action that waits for a yes
  told: '', // what the last action did
};

function update(change) {
  Object.assign(state, change);
  render(html`<${Page} ...${state} />`, document.getElementById('page'));
}

// act asks first, and then does what is asked for.
function act(action) {
  update({asking: action});
}

async function confirmed(action) {
  update({asking: null, told: `${action.title} ...`});
  try {
    update({told: await action.run()});
  } catch (error) {
    update({told: `${action.title}: ${error.message}`});
  }
}

function Page({installation, heard, fault, terms, asking, told}) {
  const stale = !!fault && Date.now() - heard > 2 * every;
  return html`
    <header>
      <h1>Regent</h1>
      <p class="who">${installation ? html`installation of shard <strong>${installation.root}</strong>` : 'asking ...'}</p>
      <p class=${stale ? 'live stale' : 'live'} role="status">
        <span class="dot" aria-hidden="true"></span>
        ${stale ? html`no answer ${heard ? `since ${at(heard)}` : 'yet'}: ${fault}` : installation ? 'live' : ''}
      </p>
    </header>
    <p class="told" role="status" aria-live="polite">${told}</p>
    ${installation && html`
      <main class=${stale ? 'stale' : ''}>
        <${Problems} problems=${installation.problems || []} />
        <${Map} installation=${installation} act=${act} />
        <${Timeline} installation=${installation} terms=${terms} />
        <${Controllers} installation=${installation} />
        <${Workspaces} />
      </main>`}
    <footer>${installation && html`${count(installation.shards.length, 'shard')}, observed ${at(installation.observed)} by ${installation.by}. The same on a terminal: <code>regent status</code>.`}</footer>
    ${asking && html`<${Ask} action=${asking} yes=${() => confirmed(asking)} no=${() => update({asking: null})} />`}`;
}

// follow asks how the installation is, again and again. A question that is not answered is not asked twice.
async function follow() {
  for (;;) {
    const began = Date.now();
    try {
      update({installation: await api.installation(), heard: Date.now(), fault: ''});
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
    const epoch = api.leaderOf(shard)?.election.epoch;
    const known = state.terms[shard.name];
    if (shard.fault || (known && known.epoch === epoch && Date.now() - known.asked < termsEvery)) continue;
    state.terms[shard.name] = {...known, epoch, asked: Date.now()};
    api.terms(shard.name).then(
      answer => update({terms: {...state.terms, [shard.name]: {...state.terms[shard.name], terms: answer.terms || [], none: false, fault: ''}}}),
      error => update({terms: {...state.terms, [shard.name]: {...state.terms[shard.name], none: error.status === 404, fault: error.message}}}));
  }
}

update({});
follow();
