// What is wrong, what it is about, and what to do about it.
import {html} from './html.js';
import {Copy} from './copy.js';
import {worded} from './docs.js';

const marks = {critical: '✖', warning: '▲', notice: '●'};

// place is the part of the page that a problem is about.
export function place({kind, shard, replica}) {
  if (replica && kind.startsWith('controller')) return `controllers/${shard}/${replica}`;
  return replica ? `replica/${shard}/${replica}` : `shard/${shard}`;
}

export function Problems({problems}) {
  return problems.length > 0 && html`
    <section class="bare" aria-labelledby="problems">
      <h2 id="problems">What is wrong</h2>
      <ul class="problems" aria-live="polite">
        ${problems.map(p => html`<${Problem} key=${[p.kind, p.shard, p.replica, p.what].join()} problem=${p} />`)}
      </ul>
    </section>`;
}

function Problem({problem: p}) {
  return html`
    <li class=${`card ${p.severity}`}>
      <p class="about">
        <span class="mark" aria-hidden="true">${marks[p.severity]}</span> <strong>${p.severity}</strong>
        ${p.shard && html` <a href=${`#${place(p)}`}>${p.replica ? `${p.replica} of shard ${p.shard}` : `shard ${p.shard}`}</a>`}
      </p>
      <p class="what">${p.what}</p>
      ${p.remedy.split('\n').map(line => line.startsWith('$ ')
        ? html`<p class="command" key=${line}><code>${line.slice(2)}</code><${Copy} text=${line.slice(2)} what=${`the command ${line.slice(2)}`} /></p>`
        : html`<p class="remedy" key=${line}>${worded(line)}</p>`)}
    </li>`;
}
