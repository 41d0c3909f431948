// Actions ask first.
import {html, Component} from './html.js';

export class Ask extends Component {
  componentDidMount() {
    this.dialog.showModal();
  }

  render({action, yes, no}) {
    return html`
      <dialog ref=${d => { this.dialog = d; }} aria-labelledby="ask" onClose=${no} onCancel=${no}>
        <h2 id="ask">${action.title}?</h2>
        <p>${action.text}</p>
        <form method="dialog" class="acts" onSubmit=${e => e.preventDefault()}>
          <button type="button" autofocus onClick=${no}>No</button>
          <button type="button" class="yes" onClick=${yes}>Yes, ${action.title.charAt(0).toLowerCase() + action.title.slice(1)}</button>
        </form>
      </dialog>`;
  }
}
