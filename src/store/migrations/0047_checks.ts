/** What workers and handlers do otherwise than they did before. */
export const checks = {
  version: 47,
  name: "checks",
  compatible: true,
  statements: (): string[] => [
    // JSON: by function, the hash of the definition that the worker serves; null from workers that do not say.
    "ALTER TABLE workers ADD COLUMN definition_hashes TEXT",
    // JSON: stored steps that the handler did not come to as before; null for none.
    "ALTER TABLE runs ADD COLUMN nondeterminism TEXT",
  ],
};
