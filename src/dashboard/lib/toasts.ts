import { signal } from "@preact/signals";
import { messageOf } from "./api.ts";

export interface Toast {
  id: number;
  kind: "done" | "failed";
  text: string;
}

export const toasts = signal<readonly Toast[]>([]);

const shownMs = { done: 5_000, failed: 12_000 };
const toastsMax = 5;
let last = 0;

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function toast(kind: Toast["kind"], text: string): void {
  const id = ++last;
  toasts.value = [...toasts.value, { id, kind, text }].slice(-toastsMax);
  setTimeout(() => dismiss(id), shownMs[kind]);
}

/**
 * Does it and says so, unless `done` is empty; a refusal is said with the server's words. Answers whether it
 * was done.
 */
export async function attempt(act: () => Promise<unknown>, done = ""): Promise<boolean> {
  try {
    await act();
    if (done !== "") toast("done", done);
    return true;
  } catch (error) {
    toast("failed", messageOf(error));
    return false;
  }
}

export async function copy(text: string, what: string): Promise<void> {
  await attempt(() => navigator.clipboard.writeText(text), `${what} copied`);
}
