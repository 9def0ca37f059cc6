import type { StoreEngine } from "../store.ts";

/** Facts of the installation; its id is written by the next start. */
export const installation = {
  version: 73,
  name: "id of the installation",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    return [`CREATE TABLE installation (name ${text} PRIMARY KEY, value ${text} NOT NULL)`];
  },
};
