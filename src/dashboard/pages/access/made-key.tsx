import { useState } from "preact/hooks";
import { copy } from "../../lib/toasts.ts";
import { Button } from "../../ui/basics.tsx";
import { Dialog } from "../../ui/dialog.tsx";

/** The one time that the text of a key is seen. */
export function MadeKey({ text, onClose }: { text: string; onClose: () => void }) {
  const [isCopied, setCopied] = useState(false);
  return (
    <Dialog title="The new key" stays onClose={onClose}>
      <div class="form">
        <p>This is the only time that it is shown. Keep it where secrets are kept.</p>
        <pre class="secret-text">{text}</pre>
        <footer class="dialog-foot">
          <Button
            kind={isCopied ? "plain" : "primary"}
            icon="copy"
            onClick={() => void copy(text, "Key").then(() => setCopied(true))}
          >
            Copy
          </Button>
          <Button kind={isCopied ? "primary" : "plain"} onClick={onClose}>
            I have kept it
          </Button>
        </footer>
      </div>
    </Dialog>
  );
}
