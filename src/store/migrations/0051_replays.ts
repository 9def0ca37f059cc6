/** Replays: repairs that start one function on events of the past. */
export const replays = {
  version: 51,
  name: "replays",
  compatible: true,
  // Of a replay: the event that the run was started on.
  statements: (): string[] => ["ALTER TABLE repair_items ADD COLUMN event_id TEXT"],
};
