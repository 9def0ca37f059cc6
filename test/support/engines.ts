const all = ["libsql", "postgres"] as const;
export type EngineName = (typeof all)[number];

/** What a lane of `test:all` is told: it runs the half of one engine, and another lane the other. */
export const engineVariable = "SVC_TEST_ENGINE";

const only = process.env[engineVariable];
if (only !== undefined && !all.some((name) => name === only))
  throw new Error(`${engineVariable} is one of ${all.join(", ")}, not "${only}"`);

/** `describe.each(engines)`: what is promised is promised on both. */
export const engines: readonly EngineName[] = all.filter((name) => only === undefined || name === only);
