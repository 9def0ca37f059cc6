import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { messageOf } from "../lib/api.ts";
import { plain } from "../lib/format.ts";
import { toast } from "../lib/toasts.ts";
import { Button, Text } from "./basics.tsx";

/**
 * Opens it with the focus on its first field, and gives the focus back when it goes: to what had it, or to
 * the page where that went too. A dialog that is merely taken out of the page gives nothing back.
 */
function openModal(dialog: HTMLDialogElement): () => void {
  const before = document.activeElement;
  dialog.showModal();
  dialog.querySelector<HTMLElement>("input, textarea, select")?.focus();
  return () => {
    // What is behind an open dialog takes no focus.
    dialog.close();
    const isThere = before instanceof HTMLElement && before !== document.body && before.isConnected;
    const back = isThere ? before : document.getElementById("content");
    back?.focus({ preventScroll: true });
  };
}

/** A modal dialog of the browser, which keeps the focus inside and gives it back. */
export function Dialog(props: {
  title: string;
  children: ComponentChildren;
  onClose: () => void;
  kind?: string;
  /** It stays until it is answered. */
  stays?: boolean;
}) {
  const { title, children, onClose, kind = "", stays = false } = props;
  const element = useRef<HTMLDialogElement>(null);
  const isGone = useRef(false);
  const titleId = useId();
  useEffect(() => {
    // A click beside it is as good as Escape.
    element.current?.setAttribute("closedby", stays ? "none" : "any");
    const giveBack = openModal(element.current!);
    return () => {
      isGone.current = true;
      giveBack();
    };
  }, [stays]);
  const closed = () => {
    if (isGone.current) return;
    // Escape pressed twice closes a dialog whatever its page says.
    if (stays) element.current?.showModal();
    else onClose();
  };
  return (
    <dialog
      ref={element}
      class={`dialog ${kind}`}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        if (!stays) onClose();
      }}
      onClose={closed}
    >
      <div class="dialog-inner">
        <header class="dialog-head">
          <h2 id={titleId}>{title}</h2>
          {!stays && <Button kind="quiet" icon="close" label="Close" onClick={onClose} />}
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** A form in a dialog. `onSubmit` throws what is shown; then what was typed stays. */
export function FormDialog(props: {
  title: string;
  submit: string;
  isDangerous?: boolean;
  isDisabled?: boolean;
  children?: ComponentChildren;
  onSubmit: () => Promise<void>;
  onClose: () => void;
}) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError("");
    try {
      await props.onSubmit();
      props.onClose();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {props.children}
        {error !== "" && (
          <p class="form-error" role="alert">
            <Text of={error} />
          </p>
        )}
        <footer class="dialog-foot">
          <Button onClick={props.onClose}>Close</Button>
          <Button
            type="submit"
            kind={props.isDangerous ? "danger" : "primary"}
            isDisabled={isBusy || props.isDisabled === true}
          >
            {props.submit}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Asks before something is done that cannot be taken back. `act` throws what is shown. */
export function Confirm(props: {
  title: string;
  verb: string;
  isDangerous?: boolean;
  children?: ComponentChildren;
  act: () => Promise<unknown>;
  /** Said when it is done. */
  done: string;
  onDone: () => void;
  onClose: () => void;
}) {
  const { title, verb, isDangerous = true, children, act, done, onDone, onClose } = props;
  const submit = async () => {
    await act();
    toast("done", done);
    onDone();
  };
  return (
    <FormDialog title={title} submit={verb} isDangerous={isDangerous} onSubmit={submit} onClose={onClose}>
      {children}
    </FormDialog>
  );
}

export function Choice(props: {
  label: string;
  value: string;
  options: readonly (readonly [value: string, name: string])[];
  onChange: (value: string) => void;
  hint?: string;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select
        id={id}
        value={props.value}
        aria-describedby={props.hint ? `${id}-hint` : undefined}
        onChange={({ currentTarget: { value } }) => props.onChange(value)}
      >
        {props.options.map(([value, name]) => (
          <option key={value} value={value}>
            {plain(name)}
          </option>
        ))}
      </select>
      {props.hint && (
        <p class="hint" id={`${id}-hint`}>
          {props.hint}
        </p>
      )}
    </div>
  );
}

export const Check = (props: {
  label: ComponentChildren;
  isChecked: boolean;
  onChange: (is: boolean) => void;
}) => (
  <label class="check">
    <input
      type="checkbox"
      checked={props.isChecked}
      onChange={({ currentTarget: { checked } }) => props.onChange(checked)}
    />
    <span>{props.label}</span>
  </label>
);

export function Field(props: {
  label: string;
  hint?: string;
  value: string;
  onInput: (value: string) => void;
  rows?: number;
  type?: "text" | "email" | "password" | "number";
  isRequired?: boolean;
  autoComplete?: string;
  isCode?: boolean;
}) {
  const id = useId();
  const shared = {
    id,
    value: props.value,
    required: props.isRequired,
    "aria-describedby": props.hint ? `${id}-hint` : undefined,
    class: props.isCode ? "code" : undefined,
    spellcheck: false,
    autocomplete: props.autoComplete ?? "off",
    onInput: (event: { currentTarget: { value: string } }) => props.onInput(event.currentTarget.value),
  };
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.rows ? (
        <textarea {...shared} rows={props.rows} />
      ) : (
        <input {...shared} type={(props.type ?? "text") as "text"} />
      )}
      {props.hint && (
        <p class="hint" id={`${id}-hint`}>
          {props.hint}
        </p>
      )}
    </div>
  );
}
