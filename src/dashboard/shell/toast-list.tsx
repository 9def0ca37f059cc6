import { plain } from "../lib/format.ts";
import { dismiss, toasts } from "../lib/toasts.ts";
import { Button } from "../ui/basics.tsx";
import { Icon } from "../ui/icons.tsx";

export const ToastList = () => (
  <div class="toasts" role="status" aria-live="polite">
    {toasts.value.map(({ id, kind, text }) => (
      <div key={id} class={`toast ${kind}`}>
        <Icon name={kind === "done" ? "check" : "alert"} />
        <p>
          <bdi>{plain(text)}</bdi>
        </p>
        <Button kind="quiet" icon="close" label="Dismiss" onClick={() => dismiss(id)} />
      </div>
    ))}
  </div>
);
