import { shortcuts } from "../lib/keys.ts";
import { Dialog } from "../ui/dialog.tsx";

/** Every key that does something now. */
export const Help = ({ onClose }: { onClose: () => void }) => (
  <Dialog title="Keys" onClose={onClose}>
    <dl class="keys">
      {[...shortcuts.value, { keys: "Ctrl K", about: "Commands" }].map(({ keys, about }) => (
        <div key={keys}>
          <dt>
            {keys.split(" ").map((key) => (
              <kbd key={key}>{key}</kbd>
            ))}
          </dt>
          <dd>{about}</dd>
        </div>
      ))}
    </dl>
  </Dialog>
);
