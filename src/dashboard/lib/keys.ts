import { signal } from "@preact/signals";

/** A key, or two pressed one after the other (`g r`). */
export interface Shortcut {
  keys: string;
  about: string;
  act(): void;
}

export const shortcuts = signal<readonly Shortcut[]>([]);

export function addShortcuts(added: readonly Shortcut[]): () => void {
  shortcuts.value = [...shortcuts.value, ...added];
  return () => {
    shortcuts.value = shortcuts.value.filter((one) => !added.includes(one));
  };
}

/** `target` is the innermost element: an editor may stand in a shadow tree. */
const isTyping = (target: EventTarget | undefined): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) &&
  !(target instanceof HTMLInputElement && /^(checkbox|range|button)$/.test(target.type));

const secondWithinMs = 1_200;
let first = { key: "", at: 0 };

export function followKeys(openPalette: () => void): () => void {
  const pressed = (event: KeyboardEvent) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.composedPath()[0])) return;
    if (document.querySelector("dialog[open]")) return;
    const now = performance.now();
    const pair = now - first.at < secondWithinMs ? `${first.key} ${event.key}` : "";
    const last = (pressed: string) => shortcuts.value.findLast(({ keys }) => keys === pressed);
    // The one added last counts: a page's own key hides the shell's, but not the second of two.
    const found = last(pair) ?? last(event.key);
    first = { key: event.key, at: now };
    if (!found) return;
    event.preventDefault();
    found.act();
  };
  document.addEventListener("keydown", pressed);
  return () => document.removeEventListener("keydown", pressed);
}
