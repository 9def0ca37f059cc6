import type { StoreEngine } from "../store.ts";

/** Which process has a worker's name, so that its goodbye is not another's. Older rows say nothing. */
export const goodbyes = {
  version: 69,
  name: "goodbyes of workers",
  compatible: true,
  statements: (engine: StoreEngine): string[] => [
    `ALTER TABLE workers ADD COLUMN holder TEXT${engine === "postgres" ? ' COLLATE "C"' : ""}`,
    "ALTER TABLE workers ADD COLUMN poll_end BIGINT NOT NULL DEFAULT 0",
  ],
};
