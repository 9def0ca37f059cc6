import type { StoreEngine } from "../store.ts";

/** Which build a worker is. Rows from before say nothing. */
export const deployments = {
  version: 74,
  name: "deployments of workers",
  compatible: true,
  statements: (engine: StoreEngine): string[] => [
    `ALTER TABLE workers ADD COLUMN deployment TEXT${engine === "postgres" ? ' COLLATE "C"' : ""}`,
  ],
};
