import { useState } from "preact/hooks";
import { copy } from "../../lib/toasts.ts";
import { Button } from "../../ui/basics.tsx";
import { Dialog } from "../../ui/dialog.tsx";

/** The one time that a secret is seen: the text of a key, when no title says what else. */
export function MadeKey(props: { text: string; title?: string; onClose: () => void }) {
  const { text, title = "The new key", onClose } = props;
  const [isCopied, setCopied] = useState(false);
  return (
    <Dialog title={title} stays onClose={onClose}>
      <div class="form">
        <p>This is the only time that it is shown. Keep it where secrets are kept.</p>
        <pre class="secret-text">{text}</pre>
        <footer class="dialog-foot">
          <Button
            kind={isCopied ? "plain" : "primary"}
            icon="copy"
            onClick={() => void copy(text, title).then(() => setCopied(true))}
          >
            Copy
          </Button>
          <Button text="I have kept it" kind={isCopied ? "primary" : "plain"} onClick={onClose} />
        </footer>
      </div>
    </Dialog>
  );
}
