import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { plain } from "../lib/format.ts";

const shownMax = 8;

/** A field that offers to end the word before the caret. An arrow chooses, Enter takes what is chosen. */
export function SuggestInput(props: {
  label: string;
  placeholder: string;
  value: string;
  /** What could follow the word that is typed. */
  suggest: (word: string) => readonly string[];
  /** Says what is wrong with it; empty where nothing is. */
  error?: string;
  onInput: (value: string) => void;
  onCommit: () => void;
}) {
  const { label, placeholder, value, suggest, error = "", onInput, onCommit } = props;
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  /** The caret's place after a completion. The next render sets it; a frame later is after the next key. */
  const taken = useRef<number | undefined>(undefined);
  const [caret, setCaret] = useState(-1);
  const [chosen, setChosen] = useState(-1);
  const [word = ""] = /[\w.]+$/.exec(value.slice(0, Math.max(0, caret))) ?? [];
  const offered =
    caret < 0 || word === ""
      ? []
      : suggest(word)
          .filter((one) => one !== word)
          .slice(0, shownMax);
  const close = () => {
    setCaret(-1);
    setChosen(-1);
  };
  const take = (one: string) => {
    const before = value.slice(0, caret - word.length) + one;
    onInput(before + value.slice(caret));
    close();
    taken.current = before.length;
  };
  useLayoutEffect(() => {
    const at = taken.current;
    if (at === undefined) return;
    taken.current = undefined;
    field.current?.focus();
    field.current?.setSelectionRange(at, at);
  });
  const press = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined && offered.length > 0) {
      event.preventDefault();
      setChosen((chosen + by + offered.length) % offered.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (offered[chosen] !== undefined) take(offered[chosen]);
      else {
        close();
        onCommit();
      }
    } else if (event.key === "Escape" && offered.length > 0) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  return (
    <span class="suggest">
      <input
        ref={field}
        class="code"
        type="text"
        role="combobox"
        aria-label={label}
        aria-expanded={offered.length > 0}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={offered[chosen] === undefined ? undefined : `${id}-${chosen}`}
        aria-invalid={error !== ""}
        aria-describedby={error === "" ? undefined : `${id}-error`}
        placeholder={placeholder}
        value={value}
        spellcheck={false}
        autocomplete="off"
        onInput={({ currentTarget }) => {
          onInput(currentTarget.value);
          setCaret(currentTarget.selectionStart ?? -1);
          setChosen(-1);
        }}
        onKeyDown={press}
        onBlur={() => {
          close();
          onCommit();
        }}
      />
      <div
        id={`${id}-list`}
        class="suggestions"
        role="listbox"
        aria-label="Suggestions"
        hidden={offered.length === 0}
      >
        {offered.map((one, index) => (
          // biome-ignore lint/a11y/useFocusableInteractive: the field keeps the focus
          <div
            key={one}
            id={`${id}-${index}`}
            class="suggestion"
            role="option"
            aria-selected={index === chosen}
            // Before the field loses the focus.
            onMouseDown={(event) => {
              event.preventDefault();
              take(one);
            }}
          >
            <bdi>{plain(one)}</bdi>
          </div>
        ))}
      </div>
      {error !== "" && (
        <p class="form-error" role="alert" id={`${id}-error`}>
          <bdi>{plain(error)}</bdi>
        </p>
      )}
    </span>
  );
}
