import type { StoreEngine } from "../store.ts";

/**
 * Lists of events decide by names and sources which rows they show. On libSQL a row lies in its table whole: looking at the name
 * of an event of megabytes reads all of it, so that a filter that matches little held the node for seconds. This index has all
 * that filters ask. PostgreSQL keeps large values apart and needs none.
 */
export const eventLists = {
  version: 28,
  name: "event lists",
  compatible: true,
  statements: (engine: StoreEngine): string[] =>
    engine === "postgres"
      ? []
      : [
          "CREATE INDEX events_by_time_filtered ON events (environment_id, at, id, name, source)",
          "DROP INDEX events_by_time",
        ],
};
