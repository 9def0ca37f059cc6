import type { StoreEngine } from "../store.ts";

/** What the key of a debounce entry was in its event; null of entries that earlier programs armed. */
export const debounceKinds = {
  version: 66,
  name: "debounce kinds",
  compatible: true,
  statements: (engine: StoreEngine): string[] => [
    `ALTER TABLE debounces ADD COLUMN key_kind TEXT${engine === "postgres" ? ' COLLATE "C"' : ""}`,
  ],
};
