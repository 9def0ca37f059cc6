/** Runs may invoke functions with event triggers, when they ask for it. */
export const invokedFunctions = {
  version: 46,
  name: "invoked_functions",
  compatible: true,
  // Null: the function must have no event triggers.
  statements: (): string[] => ["ALTER TABLE invocations ADD COLUMN any_function BIGINT"],
};
