// What the page asks the server. All requests go to where the page came from.

// Refused is an answer that is not 2xx. Its message is for people. next is where a list goes on whose snapshot is forgotten (410).
export class Refused extends Error {
  constructor(status, message, next) {
    super(message);
    this.status = status;
    this.next = next || '';
  }
}

// reached fetches, and says why that failed in words that all browsers share.
async function reached(path, how) {
  try {
    return await fetch(path, how);
  } catch (error) {
    throw new Error(error.name === 'TimeoutError' ? 'the server does not answer in time' : 'the server cannot be reached: does regent ui still run?', {cause: error});
  }
}

async function ask(path, {method = 'GET', body, type = 'application/json', timeout = 5000} = {}) {
  const answer = await reached(path, {
    method, body, cache: 'no-store', credentials: 'same-origin', redirect: 'error',
    headers: body === undefined ? {Accept: 'application/json'} : {Accept: 'application/json', 'Content-Type': type},
    signal: AbortSignal.timeout(timeout),
  });
  const text = await answer.text();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (!answer.ok) throw new Refused(answer.status, value?.message || text.slice(0, 300) || answer.statusText, value?.metadata?.continue);
  if (value === undefined) throw new Refused(answer.status, `${path} was not answered with JSON: is this a Regent server?`);
  return value;
}

export const installation = () => ask('/regent/v1/installation');
export const terms = shard => ask(`/regent/v1/terms?shard=${encodeURIComponent(shard)}`);
export const found = text => ask(`/regent/v1/workspaces?limit=50&search=${encodeURIComponent(text)}`);

// workspaces returns a page of those below a path.
export const workspaces = (path, from = '') =>
  ask(`/clusters/${path}/apis/tenancy.kcp.io/v1alpha1/workspaces?limit=200&continue=${encodeURIComponent(from)}`, {timeout: 20000});

// stepDown asks the leader of the shard, or of one of its ranges, to end its term, of that epoch and no later one. to is the replica that should lead next, or
// empty.
export const stepDown = (shard, epoch, to, reason, range) =>
  ask(`/election/step-down?shard=${encodeURIComponent(shard)}&epoch=${epoch}${range === undefined ? '' : `&range=${range}`}`, {method: 'POST', body: JSON.stringify({to, reason})});

// cordon lets a shard take no new logical clusters, or take them again.
export const cordon = (shard, cordoned) =>
  ask(`/clusters/root/apis/core.kcp.io/v1alpha1/shards/${encodeURIComponent(shard)}`, {
    method: 'PATCH', type: 'application/merge-patch+json',
    body: JSON.stringify({metadata: {annotations: {'experimental.core.kcp.io/unschedulable': cordoned ? 'true' : null}}}),
  });

// leaderOf returns the replica that leads a shard, if it is listed. Two may have one name.
export function leaderOf({replicas, leader, leaderInstance}) {
  return replicas?.find(r => r.name === leader && (!leaderInstance || !r.instance || r.instance === leaderInstance));
}

// divided returns the ranges of a shard, as the replica knows them that knows most; undefined: it has one leader.
export const divided = ({replicas}) =>
  replicas?.filter(r => !r.fault && r.ranges).map(r => r.ranges).reduce((most, r) => (r.ranges?.length || 0) > (most?.ranges?.length || -1) ? r : most, undefined);

// idOf returns what names a replica on this page: its name, or that of its process if two have one name.
export function idOf(shard, replica) {
  return shard.replicas.some(r => r !== replica && r.name === replica.name) ? replica.instance || replica.name : replica.name;
}
