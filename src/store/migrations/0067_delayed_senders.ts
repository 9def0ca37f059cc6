import type { StoreEngine } from "../store.ts";

/** Who sent a delayed event, as JSON: it is emitted while they may emit it. Older rows say nothing. */
export const delayedSenders = {
  version: 67,
  name: "delayed senders",
  compatible: true,
  statements: (engine: StoreEngine): string[] => [
    `ALTER TABLE delayed_events ADD COLUMN sender TEXT${engine === "postgres" ? ' COLLATE "C"' : ""}`,
  ],
};
