/** What a look found; `remedy` says what to do about it. */
export interface Finding {
  check: string;
  state: "ok" | "warning" | "bad";
  found: string;
  remedy?: string;
}

export const ok = (check: string, found: string): Finding => ({ check, state: "ok", found });
export const warning = (check: string, found: string, remedy: string): Finding => ({
  check,
  state: "warning",
  found,
  remedy,
});
export const bad = (check: string, found: string, remedy: string): Finding => ({
  check,
  state: "bad",
  found,
  remedy,
});
