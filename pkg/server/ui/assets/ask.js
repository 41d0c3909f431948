// Actions ask first.
import {html, Component} from './html.js';

export class Ask extends Component {
  componentDidMount() {
    this.dialog.showModal();
  }

  // The browser gives the focus back to where it was only if the dialog is closed before it is taken out of the page.
  close(then) {
    this.answered = true;
    this.dialog.close();
    then();
  }

  render({action, yes, no}) {
    return html`
      <dialog ref=${d => { this.dialog = d; }} aria-labelledby="ask" aria-describedby="asktext" onClose=${() => this.answered || no()}>
        <h2 id="ask">${action.title}?</h2>
        <p id="asktext">${action.text}</p>
        <p class="acts">
          <button type="button" autofocus onClick=${() => this.close(no)}>No</button>
          <button type="button" class="yes" onClick=${() => this.close(yes)}>Yes, ${action.verb}</button>
        </p>
      </dialog>`;
  }
}
