// A button that copies what stands beside it.
import {html, Component} from './html.js';

const shown = 1500; // milliseconds for which it says what became of it

export class Copy extends Component {
  constructor() {
    super();
    this.state = {says: ''};
  }

  componentWillUnmount() {
    clearTimeout(this.timer);
  }

  async copy(text) {
    let says = 'Copied';
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      says = 'Select it: this browser does not copy';
    }
    this.setState({says});
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.setState({says: ''}), shown);
  }

  render({text, what}, {says}) {
    return html`<button type="button" class="copy" aria-label=${`Copy ${what}`} onClick=${() => this.copy(text)}><span role="status">${says || 'Copy'}</span></button>`;
  }
}
