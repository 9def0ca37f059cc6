import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { messageOf } from "../lib/api.ts";
import { plain } from "../lib/format.ts";
import { toast } from "../lib/toasts.ts";
import { Button, FormError } from "./basics.tsx";
import type { IconName } from "./icons.tsx";

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

/** What a dialog calls when it is over. */
export interface DialogEnds {
  onClose: () => void;
}

/** The same of a dialog that changes what the page shows: `onDone` comes first, when it has. */
export interface ChangeEnds extends DialogEnds {
  onDone: () => void;
}

/**
 * A form in a dialog. `onSubmit` throws what is shown; then what was typed stays. When it is done, its answer
 * is said.
 */
export function FormDialog(
  props: DialogEnds & {
    title: string;
    submit: string;
    isDangerous?: boolean;
    isDisabled?: boolean;
    children?: ComponentChildren;
    onSubmit: () => Promise<string | void>;
    onDone?: () => void;
  },
) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError("");
    try {
      const done = await props.onSubmit();
      if (done) toast("done", done);
      props.onDone?.();
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
        <FormError of={error} />
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

interface ConfirmProps {
  title: string;
  verb: string;
  isDangerous?: boolean;
  children?: ComponentChildren;
  act: () => Promise<unknown>;
  /** Said when it is done. */
  done: string;
  onDone: () => void;
}

/** Asks before something is done that cannot be taken back. `act` throws what is shown. */
export function Confirm({ verb, isDangerous = true, act, done, ...form }: ConfirmProps & DialogEnds) {
  const submit = async () => {
    await act();
    return done;
  };
  return <FormDialog submit={verb} isDangerous={isDangerous} onSubmit={submit} {...form} />;
}

interface OpenerProps {
  text: string;
  icon?: IconName | undefined;
}

/** A button, and the dialog that it opens: `children` make it of what it calls to be closed. */
export function Opener(
  props: OpenerProps & {
    kind?: "primary";
    isDisabled?: boolean;
    /** Called when the dialog closes, whether something was done or not. */
    onClosed?: () => void;
    children: (onClose: () => void) => ComponentChildren;
  },
) {
  const { onClosed, children, ...button } = props;
  const [isOpen, setOpen] = useState(false);
  const close = () => {
    setOpen(false);
    onClosed?.();
  };
  return (
    <>
      <Button {...button} onClick={() => setOpen(true)} />
      {isOpen && children(close)}
    </>
  );
}

/** A button that asks before it acts. */
export const ConfirmOpener = ({ text, icon, ...confirm }: OpenerProps & ConfirmProps) => (
  <Opener text={text} icon={icon}>
    {(onClose) => <Confirm {...confirm} onClose={onClose} />}
  </Opener>
);

/** What is typed into a form, and by the name of a field what its `Field` or `Choice` is given. */
export function useFields<Name extends string>(first: Record<Name, string> | (() => Record<Name, string>)) {
  const [typed, setTyped] = useState<Record<Name, string>>(first);
  const field = (name: Name) => ({
    value: typed[name],
    onInput: (value: string) => setTyped((before) => ({ ...before, [name]: value })),
  });
  return [typed, field] as const;
}

interface SelectProps {
  value: string;
  options: readonly (readonly [value: string, name: string])[];
  onInput: (value: string) => void;
}

/** A choice of one. `label` names it where no label stands beside it. */
export const Select = (
  props: SelectProps & { id?: string; label?: string; describedBy?: string | undefined },
) => (
  <select
    id={props.id}
    value={props.value}
    aria-label={props.label}
    aria-describedby={props.describedBy}
    onChange={({ currentTarget: { value } }) => props.onInput(value)}
  >
    {props.options.map(([one, name]) => (
      <option key={one} value={one}>
        {plain(name)}
      </option>
    ))}
  </select>
);

export function Choice({ label, hint, ...choice }: SelectProps & { label: string; hint?: string }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <Select {...choice} id={id} describedBy={hint && `${id}-hint`} />
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
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
        <input
          {...shared}
          type={(props.type ?? "text") as "text"}
          {...(props.type === "number" && { min: 0, step: "any" })}
        />
      )}
      {props.hint && (
        <p class="hint" id={`${id}-hint`}>
          {props.hint}
        </p>
      )}
    </div>
  );
}
