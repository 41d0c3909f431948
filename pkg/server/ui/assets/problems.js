// What is wrong, and what to do about it.
import {html} from './html.js';

const marks = {critical: '✖', warning: '▲', notice: '●'};

// worded shows the words between backticks as what they are: words of commands, or of their output.
const worded = line => line.split('`').map((part, i) => i % 2 === 0 ? part : html`<code>${part}</code>`);

export function Problems({problems}) {
  return html`
    <section aria-labelledby="problems">
      <h2 id="problems">What is wrong</h2>
      ${problems.length === 0 ? html`<p class="well"><span aria-hidden="true">✔</span> Nothing that a replica knows of.</p>` : html`
        <ul class="problems" aria-live="polite">
          ${problems.map(p => html`
            <li class=${p.severity} key=${[p.kind, p.shard, p.replica, p.what].join()}>
              <span class="mark" aria-hidden="true">${marks[p.severity]}</span>
              <div>
                <p><strong>${p.severity}</strong>${p.shard && html`, shard ${p.shard}`}${p.replica && html`, ${p.replica}`}: ${p.what}</p>
                ${p.remedy.split('\n').map(line => html`<p class="remedy" key=${line}>${line.startsWith('$ ') ? html`<code>${line.slice(2)}</code>` : worded(line)}</p>`)}
              </div>
            </li>`)}
        </ul>`}
    </section>`;
}
