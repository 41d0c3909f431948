// Actions ask first.
import {html, Component} from './html.js';

export class Ask extends Component {
  componentDidMount() {
    this.dialog.showModal();
  }

  // The browser gives the focus back to where it was only if the dialog is closed before it is taken out of the page.
  close(then) {
    this.answered = true;
    const reason = this.reason?.value.trim();
    this.dialog.close();
    then(reason);
  }

  render({action, yes, no}) {
    return html`
      <dialog ref=${d => { this.dialog = d; }} aria-labelledby="ask" aria-describedby="asktext" onClose=${() => this.answered || no()}>
        <h2 id="ask">${action.title}?</h2>
        <p id="asktext">${action.text}</p>
        ${action.reasoned && html`
          <p><label>Why? It is kept in the history. <input type="text" class="reason" maxlength="200" placeholder="as in: upgrade of the machine" autocomplete="off" ref=${i => { this.reason = i; }}
            onKeyDown=${e => e.key === 'Enter' && this.close(yes)} /></label></p>`}
        <p class="acts">
          <button type="button" autofocus onClick=${() => this.close(no)}>No</button>
          <button type="button" class="yes" onClick=${() => this.close(yes)}>Yes, ${action.verb}</button>
        </p>
      </dialog>`;
  }
}
