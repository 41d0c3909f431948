// What components are written in: preact's elements by htm's templates. Neither evaluates text, as the page's policy demands.
import {h, render, Component} from './vendor/preact.js';
import htm from './vendor/htm.js';

export const html = htm.bind(h);
export {render, Component};
