/** What is left of a value that was stored as JSON and read again. */
export const asJson = (value: unknown): unknown =>
  value === undefined ? null : JSON.parse(JSON.stringify(value));
