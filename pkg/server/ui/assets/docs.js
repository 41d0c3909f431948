// Links to the docs that the server itself serves, and texts of problems with what is in them.
import {html} from './html.js';

const page = /docs\/([A-Za-z\/-]+)\.md(?:#([a-z0-9-]+))?/;

// Docs is a link to a section: docs/OPERATIONS.md#problems is at docs/OPERATIONS#problems, beside this page.
function Docs({name, section}) {
  return html`<a href=${`docs/${name}${section ? `#${section}` : ''}`} target="regent-docs">${name}${section && `: ${section.replaceAll('-', ' ')}`}</a>`;
}

// linked returns a text with links to the docs that it names.
export function linked(text) {
  const found = page.exec(text);
  if (!found) return text;
  return html`${text.slice(0, found.index)}<${Docs} name=${found[1]} section=${found[2]} />${linked(text.slice(found.index + found[0].length))}`;
}

// worded shows the words between backticks as what they are: words of commands, or of their output.
export const worded = line => line.split('`').map((part, i) => i % 2 === 0 ? linked(part) : html`<code>${part}</code>`);
